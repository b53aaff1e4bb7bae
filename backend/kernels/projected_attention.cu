#include "backend/kernels/projected_attention.h"

#include "backend/kernels/cluster.cuh"
#include "backend/kernels/decode_attention_parts.cuh"
#include "backend/kernels/device_math.cuh"
#include "backend/kernels/measured_device.h"
#include "backend/kernels/projection_few_product.cuh"
#include "backend/kernels/projection_parts.cuh"

namespace seq2seq::kernels {
namespace {

constexpr int kHeadDim = 64;
constexpr int kHeadTiles = kHeadDim / kTileOutputs;
constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kMaxSelfRows = 8;
constexpr int kMaxCrossRows = 2;

// Self-attention: a cluster of 6 blocks, each with 32 of a head's 192 queries, keys and values; a
// row's attention is done by one of them. Cross-attention: a cluster of 4 blocks for each row, each
// with 16 of a head's 64 queries and a quarter of its keys and values.
template <bool kCross>
struct Division {
  static constexpr int kTiles = kCross ? 1 : 2;  // of outputs, a block
  static constexpr int kParts = kCross ? 1 : 3;  // query, key, value
  static constexpr int kBlocks = kParts * kHeadTiles / kTiles;
  static constexpr int kRows = kCross ? 1 : (kMaxSelfRows + kBlocks - 1) / kBlocks;  // a block's
};

// A block's shared memory that other blocks write to.
template <bool kCross>
struct alignas(16) Mailbox {
  using Division = Division<kCross>;
  Arrivals projections;
  Arrivals partials;  // cross-attention, in the cluster's first block
  float projected[Division::kRows][Division::kParts][kHeadDim];
  // Weighted sums over some of the keys: this block's warps', and, in the first block of
  // cross-attention's cluster, all its blocks'.
  Partials<kWarps, kHeadDim> warps;
  Partials<Division::kBlocks, kHeadDim> blocks;

  // One thread; rows: that this block attends for.
  __device__ __forceinline__ void Expect(int rows) {
    projections.Expect(static_cast<uint32_t>(sizeof(projected[0])) * rows);
    if (kCross) {
      partials.Expect(static_cast<uint32_t>(Division::kBlocks * (kHeadDim + 2) * sizeof(float)));
    }
  }
};

template <typename T, bool kCross>
class HeadOfRow {
 public:
  using Division = Division<kCross>;
  using Mailbox = Mailbox<kCross>;
  static constexpr int kValues = kVector<T>;
  static constexpr int kLanes = kHeadDim / kValues;
  using Reader = KeyReader<T, kLanes, kThreads, true>;
  static constexpr int kStride = Reader::kGroups * Reader::kUnroll;

  // Reads what is there before the projection's input: the first keys and values. Nothing if there
  // is no such row.
  __device__ __forceinline__ HeadOfRow(const DecodeAttentionArgs& args, int head, int row, int rank)
      : args_(args),
        head_(head),
        row_(row),
        rank_(rank),
        info_(args.row_infos[min(row, args.rows - 1)]),
        active_(row < args.rows && (info_.flags & RowInfo::kActive) != 0),
        reader_(args, info_, head) {
    int length = kCross ? info_.source_length : info_.position;
    if (!active_) length = 0;
    constexpr int kAllGroups = (kCross ? Division::kBlocks : 1) * Reader::kGroups;
    const int share = Quotient(length + kAllGroups - 1, kAllGroups) * Reader::kGroups;
    begin_ = kCross ? rank * share : 0;
    end_ = min(length, begin_ + share);
    reader_.Load(First(begin_), end_);
    reader_.LoadBias(First(begin_), bias_);
    if (!kCross && args.bias != nullptr) own_bias_ = args.bias[head * (args.max_distance + 1)];
  }

  // Attends to this block's keys, and leaves each warp's result in the mailbox.
  __device__ __forceinline__ void Attend(const float (&projected)[Division::kParts][kHeadDim],
                                         Mailbox* mailbox) {
    float query[kValues];
    ReadProjected(projected[0], query);
#pragma unroll
    for (int i = 0; i < kValues; ++i) query[i] *= args_.scale;
    Partial<kValues> partial;
    for (int first = begin_; first < end_; first += kStride) {
      if (first != begin_) {
        reader_.Load(First(first), end_);
        reader_.LoadBias(First(first), bias_);
      }
      reader_.Add(First(first), end_, query, bias_, &partial);
    }
    if constexpr (!kCross) AddOwn(projected, query, &partial);
    SumGroups<kLanes>(&partial);
    const int lane = threadIdx.x % 32;
    if (lane >= kLanes) return;
    auto& warps = mailbox->warps;
    const int warp = threadIdx.x / 32;
#pragma unroll
    for (int i = 0; i < kValues; ++i) warps.values[warp][reader_.dim() + i] = partial.values[i];
    if (lane != 0) return;
    warps.max[warp] = partial.max;
    warps.sum[warp] = partial.sum;
  }

  // After a barrier; one thread a dimension. Of cross-attention one block goes on, which has the
  // others' results.
  __device__ __forceinline__ void Finish(const Mailbox& mailbox) const {
    const int dim = threadIdx.x;
    Partial<1> merged = mailbox.warps.Merged(dim);
    if constexpr (kCross) {
      Send(merged, dim, mailbox);
      if (rank_ > 0) return;
      mailbox.partials.Wait();
      merged = mailbox.blocks.Merged(dim);
    }
    const int k = head_ * kHeadDim + dim;
    static_cast<T*>(args_.output)[BlockedPlace<sizeof(T)>(row_, k, args_.row_capacity)] =
        FromFloat<T>(merged.sum > 0.0F ? DivideFor<T>(merged.values[0], merged.sum) : 0.0F);
  }

 private:
  __device__ __forceinline__ int First(int first) const {
    return first + static_cast<int>(threadIdx.x / kLanes);
  }

  __device__ __forceinline__ void ReadProjected(const float (&part)[kHeadDim],
                                                float (&values)[kValues]) const {
#pragma unroll
    for (int i = 0; i < kValues; ++i) values[i] = part[reader_.dim() + i];
  }

  // To the cluster's first block.
  __device__ __forceinline__ void Send(const Partial<1>& partial, int dim,
                                       const Mailbox& mailbox) const {
    const RemoteStore first_block(&mailbox.partials, 0);
    first_block.Store(&mailbox.blocks.values[rank_][dim], partial.values[0]);
    if (dim > 0) return;
    first_block.Store(&mailbox.blocks.max[rank_], partial.max);
    first_block.Store(&mailbox.blocks.sum[rank_], partial.sum);
  }

  // The row's own key and value, which the cache does not have yet: one group adds them, and all
  // have the same maximum.
  __device__ __forceinline__ void AddOwn(const float (&projected)[Division::kParts][kHeadDim],
                                         const float (&query)[kValues],
                                         Partial<kValues>* partial) const {
    float key[kValues];
    float value[kValues];
    ReadProjected(projected[1], key);
    ReadProjected(projected[2], value);
    const float score = DotOverLanes<kLanes>(query, key) + own_bias_;
    const float count = threadIdx.x < kLanes && active_ ? 1.0F : 0.0F;
#pragma unroll
    for (int i = 0; i < kValues; ++i) value[i] *= count;
    partial->Merge(score, count, value);
  }

  const DecodeAttentionArgs& args_;
  int head_;
  int row_;
  int rank_;
  RowInfo info_;
  bool active_;
  Reader reader_;
  int begin_;
  int end_;
  float bias_[Reader::kUnroll];
  float own_bias_ = 0.0F;
};

// Hands a pair of projected values on: a row's to the block that attends for it, or, if blocks
// share a row's keys, the row's to all of them. Keys and values as the cache will have them.
template <typename T, bool kCross>
__device__ __forceinline__ void Deliver(const Mailbox<kCross>& mailbox, uint32_t row,
                                        uint32_t output, float low, float high) {
  using Division = Division<kCross>;
  const int part = Quotient(output, kHeadDim);
  const int dim = Rest(output, kHeadDim);
  if (part > 0) {
    low = ToFloat(FromFloat<T>(low));
    high = ToFloat(FromFloat<T>(high));
  }
  const float* place = &mailbox.projected[kCross ? 0 : row / Division::kBlocks][part][dim];
  const auto send = [&](int rank) {
    const RemoteStore block(&mailbox.projections, rank);
    block.Store(place, low);
    block.Store(place + 8, high);
  };
  if constexpr (kCross) {
#pragma unroll
    for (int rank = 0; rank < Division::kBlocks; ++rank) send(rank);
  } else {
    send(Rest(row, Division::kBlocks));
  }
}

// Blocks: x is the head, y (cross-attention) the row, z the rank in the cluster. The order of the
// parameters is FewRowsKernel's.
template <typename T, bool kCross>
__global__ void __launch_bounds__(kThreads, 2)
    ProjectedAttentionKernel(int staged, int warp_vectors,
                             const __grid_constant__ ProjectedAttentionArgs args) {
  using Division = Division<kCross>;
  using Product = FewRowsProduct<T, kWarps, 1, Division::kTiles>;
  extern __shared__ uint4 shared[];
  __shared__ float factors[8];
  __shared__ Mailbox<kCross> mailbox;
  const ProjectionArgs& projection = args.projection;
  const int head = blockIdx.x;
  const int rank = blockIdx.z;
  const int first_row = kCross ? blockIdx.y : 0;
  const int row_end = kCross ? first_row + 1 : projection.rows;
  const int head_output = rank * Division::kTiles * kTileOutputs;  // of the head's outputs
  const int first_tile =
      Quotient(head_output, kHeadDim) * Quotient(projection.query_key_value.inner, kTileOutputs) +
      head * kHeadTiles + Quotient(Rest(head_output, kHeadDim), kTileOutputs);

  AllowNextKernel();
  if (threadIdx.x == 0) {
    mailbox.Expect(
        kCross ? 1 : Quotient(projection.rows + Division::kBlocks - 1 - rank, Division::kBlocks));
  }
  MeetCluster();
  Product product(projection, first_tile, first_row, row_end, staged, warp_vectors, shared);
  product.FetchWeights();
  const uint32_t pair = threadIdx.x % Product::kPairs;
  const int own_tile = Quotient(pair, Product::kTilePairs);
  auto epilogue = MakeEpilogue<T, ProjectionOutput::kQueryKeyValue>(
      projection, first_tile + own_tile, pair % Product::kTilePairs, first_row);
  if (threadIdx.x < Product::kPairs) epilogue.Prepare();
  HeadOfRow<T, kCross> first(args.attention, head, kCross ? first_row : rank, rank);
  Factors<1, kWarps> row_factors(projection, first_row, head == 0 && rank == 0 && blockIdx.y == 0);
  TouchParameters(args);
  AwaitCluster();

  WaitForEarlierKernels();
  product.FetchInput();
  row_factors.Fetch();
  if (threadIdx.x < Product::kPairs) epilogue.Fetch();
  row_factors.Reduce();
  product.Multiply();
  row_factors.Store(factors);
  __syncthreads();
  if (threadIdx.x < Product::kPairs) {
    const float2 sum = product.PairSum(pair);
    const int local_row = LocalRow(pair % Product::kTilePairs);
    const float factor = factors[local_row];
    const float2 values = epilogue.Values(sum.x, sum.y, factor);
    if (first_row + local_row < row_end) {
      const int output = head_output + own_tile * kTileOutputs + Rest(pair / 4, 8);
      Deliver<T, kCross>(mailbox, first_row + local_row, output, values.x, values.y);
    }
    if constexpr (!kCross) epilogue.Store(sum.x, sum.y, factor);
  }

  if (!kCross && rank >= projection.rows) return;
  mailbox.projections.Wait();
  const auto attend = [&](auto& head_of_row, int slot) {
    head_of_row.Attend(mailbox.projected[slot], &mailbox);
    __syncthreads();
    if (threadIdx.x < kHeadDim) head_of_row.Finish(mailbox);
  };
  attend(first, 0);
  if constexpr (!kCross) {
    for (int slot = 1, row = rank + Division::kBlocks; row < projection.rows;
         ++slot, row += Division::kBlocks) {
      HeadOfRow<T, kCross> next(args.attention, head, row, rank);
      __syncthreads();  // the row before has been finished
      attend(next, slot);
    }
  }
}

template <typename T, bool kCross>
cudaError_t LaunchTyped(const ProjectedAttentionArgs& args, const LaunchContext& context) {
  using Division = Division<kCross>;
  const auto kernel = ProjectedAttentionKernel<T, kCross>;
  size_t allowed = 0;
  const cudaError_t error = AllowSharedMemory(kernel, context, &allowed);
  if (error != cudaSuccess) return error;
  const FewRowsShape few =
      FewRowsShapeFor(args.projection.inputs, kWarps, 1, Division::kTiles, allowed);
  LaunchShape shape;
  shape.grid =
      dim3(args.attention.layout.heads, kCross ? args.projection.rows : 1, Division::kBlocks);
  shape.block = dim3(kThreads);
  shape.shared_bytes = few.shared_bytes();
  shape.cluster_z = Division::kBlocks;
  ProjectedAttentionArgs own = args;
  own.projection.query_key_value.query = nullptr;
  return Launch(kernel, shape, context, few.staged, few.warp_vectors, own);
}

template <typename T>
cudaError_t LaunchHalf(const ProjectedAttentionArgs& args, const LaunchContext& context) {
  return args.attention.cross ? LaunchTyped<T, true>(args, context)
                              : LaunchTyped<T, false>(args, context);
}

}  // namespace

// The kernel is faster than the two that it replaces if each block has a multiprocessor to itself:
// clusters wait for room beside the blocks of the stage before.
bool CanProjectAndAttend(ElementType type, const ProjectedAttentionArgs& args) {
  const ProjectionArgs& projection = args.projection;
  const KvLayout& layout = args.attention.layout;
  const bool cross = args.attention.cross;
  const int outputs = layout.heads * kHeadDim * (cross ? 1 : 3);
  return type != ElementType::kFloat32 && layout.head_dim == kHeadDim &&
         projection.output == ProjectionOutput::kQueryKeyValue && projection.outputs == outputs &&
         projection.max_splits > 1 && projection.rows == args.attention.rows &&
         projection.rows <= (cross ? kMaxCrossRows : kMaxSelfRows) &&
         layout.heads *
                 (cross ? Division<true>::kBlocks * projection.rows : Division<false>::kBlocks) <=
             kMultiprocessors;
}

cudaError_t LaunchProjectedAttention(ElementType type, const ProjectedAttentionArgs& args,
                                     const LaunchContext& context) {
  if (!CanProjectAndAttend(type, args)) return cudaErrorInvalidValue;
  return type == ElementType::kFloat16 ? LaunchHalf<__half>(args, context)
                                       : LaunchHalf<__nv_bfloat16>(args, context);
}

}  // namespace seq2seq::kernels
