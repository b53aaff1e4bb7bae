// Decode attention of many rows for compute capability 9.0: a warp has a row's head, and the copy
// engine brings it the keys and values. What is on its way needs no registers, so that all of it
// can be asked for before the query is there.
#include <algorithm>

#include "backend/kernels/decode_attention_kernels.h"
#include "backend/kernels/decode_attention_parts.cuh"
#include "backend/kernels/device_math.cuh"
#include "backend/kernels/hopper.cuh"
#include "backend/kernels/measured_device.h"
#include "backend/kernels/operand_layout.h"
#include "backend/kernels/projection_parts.cuh"
#include "backend/kernels/tensor_map.h"

namespace seq2seq::kernels {
namespace {

constexpr int kHeadDim = 64;
constexpr int kLanes = 8;  // that share a key: 8 dimensions each
constexpr int kDims = kHeadDim / kLanes;
constexpr int kGroups = 32 / kLanes;
constexpr int kUnroll = kBlockTokens / kGroups;
constexpr int kMaxRing = 16;
constexpr int kTokenBytes = kHeadDim * 2;
constexpr int kTileBytes = kBlockTokens * kTokenBytes;
constexpr int kPlaceBytes = 2 * kTileBytes;  // keys and values

// A warp's place for keys and values that are on their way: `ring` blocks of the cache.
struct Ring {
  unsigned char* tiles;  // [ring][keys, values][kBlockTokens][kHeadDim]
  uint64_t* full;        // [ring]
  int size;

  __device__ __forceinline__ unsigned char* Keys(int place) const {
    return tiles + place * kPlaceBytes;
  }
};

template <typename T>
class StreamedRow {
 public:
  __device__ StreamedRow(const DecodeAttentionArgs& args, const RowInfo& info, int head, Ring ring)
      : args_(args),
        ring_(ring),
        table_(args.blocks + int64_t{info.slot} * args.block_stride),
        head_(static_cast<const T*>(args.pool) + args.layer_offset +
              head * args.layout.HeadStride()),
        bias_(args.bias == nullptr ? nullptr : args.bias + head * (args.max_distance + 1)),
        position_(info.position) {
    const bool active = (info.flags & RowInfo::kActive) != 0;
    // Of the keys, this pass writes those of the row's own position alone: they come last.
    streamed_ = !active ? 0 : args.cross ? info.source_length : info.position;
    own_ = active && !args.cross;
    tiles_ = (streamed_ + kBlockTokens - 1) / kBlockTokens;
  }

  // Asks for as much as there is room for.
  __device__ __forceinline__ void Start() {
    const int lane = threadIdx.x % 32;
    LoadTable(0);
    if (own_) own_block_ = table_[position_ / kBlockTokens];
    if (lane == 0) {
#pragma unroll 1
      for (int i = 0; i < ring_.size; ++i) InitBarrier(ring_.full + i, 1);
      FenceBarrierInit();
    }
    __syncwarp();
    if (lane < min(ring_.size, tiles_)) Copy(lane, lane, entry_);
    FetchBias(0);
  }

  // After the wait.
  __device__ __forceinline__ void Attend(const float (&query)[kDims], Partial<kDims>* partial) {
    const int lane = threadIdx.x % 32;
    uint4 own_key = {};
    uint4 own_value = {};
    if (own_) {
      const T* place = head_ + own_block_ * args_.layout.BlockStride() +
                       position_ % kBlockTokens * kHeadDim + lane % kLanes * kDims;
      own_key = LoadFresh(reinterpret_cast<const uint4*>(place));
      own_value = LoadFresh(reinterpret_cast<const uint4*>(place + args_.layout.ValueOffset()));
    }
    int place = 0;
    uint32_t phase = 0;
    for (int tile = 0; tile < tiles_; ++tile) {
      const float tile_bias = next_bias_;
      FetchBias(tile + 1);
      WaitForPhase(ring_.full + place, phase);
      AddTile(tile, place, tile_bias, query, partial);
      Refill(tile + ring_.size, place);
      if (++place == ring_.size) {
        place = 0;
        phase ^= 1;
      }
    }
    if (own_) AddOwn(own_key, own_value, query, partial);
  }

 private:
  __device__ __forceinline__ void LoadTable(int first) {
    const int tile = first + static_cast<int>(threadIdx.x) % 32;
    entry_ = tile < tiles_ ? table_[tile] : 0;
  }

  // One thread.
  __device__ __forceinline__ void Copy(int tile, int place, int32_t block) const {
    const int tokens = min(kBlockTokens, streamed_ - tile * kBlockTokens);
    const uint32_t bytes = tokens * kTokenBytes;
    const T* keys = head_ + block * args_.layout.BlockStride();
    ArriveExpecting(ring_.full + place, 2 * bytes);
    CopyBulk(ring_.Keys(place), keys, bytes, ring_.full + place);
    CopyBulk(ring_.Keys(place) + kTileBytes, keys + args_.layout.ValueOffset(), bytes,
             ring_.full + place);
  }

  __device__ __forceinline__ void Refill(int tile, int place) {
    __syncwarp();
    if (tile >= tiles_) return;
    if (tile % 32 == 0) LoadTable(tile);
    if (static_cast<int>(threadIdx.x) % 32 == tile % 32) Copy(tile, place, entry_);
  }

  // Lanes i and i + 16 get that of the tile's key i.
  __device__ __forceinline__ void FetchBias(int tile) {
    const int key = tile * kBlockTokens + static_cast<int>(threadIdx.x) % kBlockTokens;
    next_bias_ = bias_ == nullptr ? 0.0F : bias_[max(0, min(position_ - key, args_.max_distance))];
  }

  __device__ __forceinline__ void AddTile(int tile, int place, float tile_bias,
                                          const float (&query)[kDims],
                                          Partial<kDims>* partial) const {
    const int lane = threadIdx.x % 32;
    const int group = lane / kLanes;
    const int left = streamed_ - tile * kBlockTokens;
    const uint32_t own =
        SharedAddress(ring_.Keys(place)) + group * kTokenBytes + lane % kLanes * 16;
    uint4 keys[kUnroll];
    uint4 values[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      keys[u] = LoadShared(own + u * kGroups * kTokenBytes);
      values[u] = LoadShared(own + kTileBytes + u * kGroups * kTokenBytes);
    }
    float scores[kUnroll];
    float max = partial->max;
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      float key[kDims];
      Unpack<T>(keys[u], key);
      const float bias = __shfl_sync(kFullWarp, tile_bias, u * kGroups + group);
      const float score = DotOverLanes<kLanes>(query, key) + bias;
      scores[u] = u * kGroups + group < left ? score : -INFINITY;
      max = fmaxf(max, scores[u]);
    }
    Rescale(max, partial);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      // What lies there without having been copied may be no number.
      AddValue(scores[u], u * kGroups + group < left ? values[u] : uint4{}, partial);
    }
  }

  // One group adds it.
  __device__ __forceinline__ void AddOwn(const uint4& own_key, const uint4& own_value,
                                         const float (&query)[kDims],
                                         Partial<kDims>* partial) const {
    float key[kDims];
    Unpack<T>(own_key, key);
    float score = DotOverLanes<kLanes>(query, key) + (bias_ == nullptr ? 0.0F : bias_[0]);
    if (threadIdx.x % 32 >= kLanes) score = -INFINITY;
    Rescale(fmaxf(partial->max, score), partial);
    AddValue(score, own_value, partial);
  }

  __device__ __forceinline__ static void Rescale(float max, Partial<kDims>* partial) {
    const float factor = __expf(partial->max - max);
    partial->max = max;
    partial->sum *= factor;
#pragma unroll
    for (int i = 0; i < kDims; ++i) partial->values[i] *= factor;
  }
  __device__ __forceinline__ static void AddValue(float score, const uint4& bits,
                                                  Partial<kDims>* partial) {
    const float weight = __expf(score - partial->max);
    partial->sum += weight;
    float value[kDims];
    Unpack<T>(bits, value);
#pragma unroll
    for (int i = 0; i < kDims; ++i) partial->values[i] += weight * value[i];
  }

  const DecodeAttentionArgs& args_;
  Ring ring_;
  const int32_t* table_;
  const T* head_;  // keys of the head in block 0 of the cache
  const float* bias_;
  int position_;
  int streamed_;  // keys that earlier passes wrote
  int tiles_;
  bool own_;
  int32_t own_block_ = 0;
  int32_t entry_ = 0;  // lane i: the block of tile i of the 32 at hand
  float next_bias_ = 0.0F;
};

template <typename T>
__device__ __forceinline__ void StoreOutput(const DecodeAttentionArgs& args, int row, int head,
                                            int dim, const Partial<kDims>& partial) {
  const float factor = partial.sum > 0.0F ? 1.0F / partial.sum : 0.0F;
  uint4 bits;
  bits.x = PackPair<T>(partial.values[0] * factor, partial.values[1] * factor);
  bits.y = PackPair<T>(partial.values[2] * factor, partial.values[3] * factor);
  bits.z = PackPair<T>(partial.values[4] * factor, partial.values[5] * factor);
  bits.w = PackPair<T>(partial.values[6] * factor, partial.values[7] * factor);
  T* output = static_cast<T*>(args.output) +
              BlockedPlace<sizeof(T)>(row, head * kHeadDim + dim, args.row_capacity);
  *reinterpret_cast<uint4*>(output) = bits;
}

// A block is a warp: what it has is free again as soon as it ends.
template <typename T>
__global__ void __launch_bounds__(32)
    StreamedAttentionKernel(const __grid_constant__ DecodeAttentionArgs args, int ring_size) {
  extern __shared__ __align__(128) unsigned char tiles[];
  __shared__ uint64_t full[kMaxRing];
  AllowNextKernel();
  const int head = blockIdx.x;
  const int row = blockIdx.y;
  // Row infos are complete before the first kernel of a pass starts.
  StreamedRow<T> streamed(args, args.row_infos[row], head, {tiles, full, ring_size});
  streamed.Start();
  TouchParameters(args);
  WaitForEarlierKernels();
  const int dim = static_cast<int>(threadIdx.x) % kLanes * kDims;
  float query[kDims];
  LoadQuery(args.query + (int64_t{row} * args.layout.heads + head) * kHeadDim + dim, query);
#pragma unroll
  for (int i = 0; i < kDims; ++i) query[i] *= args.scale;
  Partial<kDims> partial;
  streamed.Attend(query, &partial);
  MergeGroups<kLanes>(&partial);
  if (threadIdx.x < kLanes) StoreOutput<T>(args, row, head, dim, partial);
}

struct StreamPlan {
  int ring;
  int shared_bytes;
};

// A ring for which `resident` blocks have room on a multiprocessor, and no more than those.
StreamPlan PlanFor(int resident) {
  constexpr int kShared = 228 << 10;         // of a multiprocessor
  constexpr int kOfBlock = (1 << 10) + 128;  // what a block takes beside its ring
  constexpr int kGranule = 128;
  const int room = (kShared / resident - kOfBlock) / kGranule * kGranule;
  return {std::min(room / kPlaceBytes, kMaxRing), room};
}

// What was fastest on an H200. Blocks that come while those of the kernel before still run would
// gather where there is room first, so there is room for each multiprocessor's equal share alone,
// up to a share that is enough to keep the memory busy.
StreamPlan Plan(const DecodeAttentionArgs& args) {
  constexpr int kLeastResident = 4;
  // Few keys: what a ring of two brings before the wait is enough.
  constexpr int kSelfRing = 2;
  const int most_resident = args.cross ? 16 : 24;
  const int share = (args.rows * args.layout.heads - 1) / kMultiprocessors + 1;
  StreamPlan plan = PlanFor(std::clamp(share, kLeastResident, most_resident));
  if (!args.cross) plan.ring = std::min(plan.ring, kSelfRing);
  return plan;
}

template <typename T>
cudaError_t LaunchTyped(const DecodeAttentionArgs& args, const LaunchContext& context) {
  const StreamPlan plan = Plan(args);
  LaunchShape shape;
  shape.grid = dim3(args.layout.heads, args.rows);
  shape.block = dim3(32);
  shape.shared_bytes = plan.shared_bytes;
  return LaunchWithShared(StreamedAttentionKernel<T>, shape, context, args, plan.ring);
}

}  // namespace

bool CanStreamDecodeAttention(ElementType type, const DecodeAttentionArgs& args) {
  bool hopper = false;
  return type != ElementType::kFloat32 && args.layout.head_dim == kHeadDim && args.splits == 1 &&
         IsHopper(&hopper) == cudaSuccess && hopper;
}

cudaError_t LaunchStreamedDecodeAttention(ElementType type, const DecodeAttentionArgs& args,
                                          const LaunchContext& context) {
  return type == ElementType::kFloat16 ? LaunchTyped<__half>(args, context)
                                       : LaunchTyped<__nv_bfloat16>(args, context);
}

}  // namespace seq2seq::kernels
