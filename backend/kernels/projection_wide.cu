#include <cooperative_groups.h>

#include <algorithm>
#include <type_traits>

#include "backend/kernels/projection_kernels.h"
#include "backend/kernels/projection_parts.cuh"

namespace seq2seq::kernels {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * 32;
// Blocks that are resident at once, two a multiprocessor.
constexpr int kResidentBlocks = 264;
// A block's output tiles, chunks of inputs at a time, and how many such stages are in flight.
constexpr int kTiles = 4;
constexpr int kStageChunks = 2;
constexpr int kStages = 5;
static_assert(kWarps == kTiles * kStageChunks);

// 64 outputs of up to 64 rows, over one cluster block's share of the inputs. Warp w has output tile
// w % kTiles and chunk w / kTiles of each stage.
template <typename T, int kRowTiles, ProjectionOutput kOutput>
class WideBlock {
 public:
  static constexpr int kTilePairs = kRowTiles * 64;
  static constexpr int kPairs = kTiles * kTilePairs;
  static constexpr int kInputVectors = kStageChunks * kRowTiles * 32;
  static constexpr int kInputCopies = kInputVectors / kThreads;  // a thread's
  static_assert(kTiles * kChunkVectors == kThreads && kInputVectors % kThreads == 0);

  struct Stage {
    uint4 weights[kStageChunks][kTiles * kChunkVectors];
    uint4 input[kInputVectors];
  };
  struct Shared {
    union {
      Stage stages[kStages];
      float2 sums[kStageChunks][kTiles][kRowTiles * 64];
    };
    float factors[kRowTiles * 8];
  };

  __device__ WideBlock(const ProjectionArgs& args, int split_chunks, Shared* shared)
      : args_(args), shared_(shared), first_row_(blockIdx.y * kRowTiles * 8) {
    const int chunks = ChunkCount(args.inputs);
    begin_ = blockIdx.z * split_chunks;
    count_ = max(0, min(chunks - begin_, split_chunks));
    const int last_tile = TileCount(args.outputs) - 1;
    const int tile =
        min(static_cast<int>(blockIdx.x * kTiles + threadIdx.x / kChunkVectors), last_tile);
    weights_ = static_cast<const uint4*>(args.weights) +
               (int64_t{tile} * chunks + begin_) * kChunkVectors + threadIdx.x % kChunkVectors;
    const int row = first_row_ + threadIdx.x / 4 % (kRowTiles * 8);
    row_there_ = row < args.rows;
    input_ = static_cast<const uint4*>(args.input) + (row_there_ ? row : 0) * 4 + threadIdx.x % 4;
  }

  __device__ void Run() {
    const int stages = (count_ + kStageChunks - 1) / kStageChunks;
#pragma unroll
    for (int s = 0; s < kStages - 1; ++s) FetchWeights(s);
    CommitSharedCopies();
    TouchParameters(args_);
    WaitForEarlierKernels();
#pragma unroll
    for (int s = 0; s < kStages - 1; ++s) {
      FetchInput(s);
      CommitSharedCopies();
    }
    Factors<kRowTiles, kThreads / 32> row_factors(args_, first_row_);
    row_factors.Fetch();
    row_factors.Reduce();
    row_factors.Store(shared_->factors);
#pragma unroll 1
    for (int s = 0; s < stages; ++s) {
      WaitForSharedCopies<kStages - 2>();
      __syncthreads();
      FetchWeights(s + kStages - 1);
      FetchInput(s + kStages - 1);
      CommitSharedCopies();
      Multiply(shared_->stages[s % kStages]);
    }
    WaitForSharedCopies<0>();
    __syncthreads();
    const int warp = threadIdx.x / 32;
    sums_.Store(shared_->sums[warp / kTiles][warp % kTiles]);
  }

  // Hands on this block's share of the pairs, summed over the cluster's blocks. shared_of(rank) is
  // the shared memory of one. All of a thread's kAtOnce pairs read what they need before one is
  // handed on.
  template <typename SharedOf>
  __device__ void Finish(int splits, SharedOf shared_of) {
    constexpr int kAtOnce = 2;
    const int share = kPairs / splits;
    const int begin = blockIdx.z * share;
#pragma unroll 1
    for (int first = threadIdx.x; first < share; first += kAtOnce * kThreads) {
      Epilogue<T, kOutput> epilogues[kAtOnce] = {
          At(begin + first, true), At(begin + first + kThreads, first + kThreads < share)};
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        epilogues[i].Prepare();
        epilogues[i].Fetch();
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (first + i * kThreads >= share) continue;
        const int pair = begin + first + i * kThreads;
        const int p = pair % kTilePairs;
        float low = 0.0F;
        float high = 0.0F;
        for (int rank = 0; rank < splits; ++rank) {
          const Shared* other = shared_of(rank);
#pragma unroll
          for (int half = 0; half < kStageChunks; ++half) {
            const float2 sums = other->sums[half][pair / kTilePairs][p];
            low += sums.x;
            high += sums.y;
          }
        }
        epilogues[i].Store(low, high, shared_->factors[LocalRow(p)]);
      }
    }
  }

 private:
  // A pair that is not this block's is of no tile.
  __device__ __forceinline__ Epilogue<T, kOutput> At(int pair, bool own) const {
    const int tile =
        own ? static_cast<int>(blockIdx.x) * kTiles + pair / kTilePairs : TileCount(args_.outputs);
    return MakeEpilogue<T, kOutput>(args_, tile, pair % kTilePairs, first_row_);
  }

  __device__ __forceinline__ void FetchWeights(int s) {
    Stage& stage = shared_->stages[s % kStages];
#pragma unroll
    for (int i = 0; i < kStageChunks; ++i) {
      const int chunk = s * kStageChunks + i;
      CopyToSharedAsync(&stage.weights[i][threadIdx.x],
                        weights_ + int64_t{min(chunk, max(count_ - 1, 0))} * kChunkVectors,
                        chunk < count_);
    }
  }

  __device__ __forceinline__ void FetchInput(int s) {
    Stage& stage = shared_->stages[s % kStages];
#pragma unroll
    for (int i = 0; i < kInputCopies; ++i) {
      const int v = threadIdx.x + i * kThreads;
      const int chunk = s * kStageChunks + v / (kRowTiles * 32);
      const int there = min(begin_ + chunk, begin_ + max(count_ - 1, 0));
      CopyToSharedAsync(&stage.input[v], input_ + int64_t{there} * args_.row_capacity * 4,
                        chunk < count_ && row_there_);
    }
  }

  __device__ __forceinline__ void Multiply(const Stage& stage) {
    const int lane = OperandLane(threadIdx.x % 32);
    const int warp = threadIdx.x / 32;
    const uint4* weights = &stage.weights[warp / kTiles][warp % kTiles * kChunkVectors];
    uint4 input[kRowTiles];
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
      input[i] = stage.input[(warp / kTiles * kRowTiles + i) * 32 + lane];
    }
    sums_.Add(weights[lane], weights[32 + lane], input);
  }

  const ProjectionArgs& args_;
  Shared* shared_;
  int first_row_;
  int begin_;
  int count_;
  bool row_there_;
  const uint4* weights_;
  const uint4* input_;
  Sums<T, kRowTiles> sums_;
};

template <typename T, int kRowTiles, ProjectionOutput kOutput>
__global__ void __launch_bounds__(kThreads, 2)
    WideKernel(const __grid_constant__ ProjectionArgs args, int split_chunks, int splits) {
  using Shared = typename WideBlock<T, kRowTiles, kOutput>::Shared;
  extern __shared__ uint4 shared[];
  auto* own = reinterpret_cast<Shared*>(shared);
  AllowNextKernel();
  WideBlock<T, kRowTiles, kOutput> block(args, split_chunks, own);
  block.Run();
  if (splits == 1) {
    __syncthreads();
    block.Finish(1, [own](int) { return own; });
    return;
  }
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  const cooperative_groups::cluster_group cluster = cooperative_groups::this_cluster();
  cluster.sync();
  block.Finish(splits, [&](int rank) { return cluster.map_shared_rank(own, rank); });
  cluster.sync();  // nobody may leave while others read its shared memory
#endif
}

template <typename T, int kRowTiles>
cudaError_t LaunchTyped(const ProjectionArgs& args, const LaunchContext& context) {
  const int chunks = ChunkCount(args.inputs);
  const int tile_blocks = (TileCount(args.outputs) + kTiles - 1) / kTiles;
  const int row_blocks = (args.rows + kRowTiles * 8 - 1) / (kRowTiles * 8);
  int splits = 1;
  while (splits < args.max_splits && tile_blocks * row_blocks * splits * 2 <= kResidentBlocks &&
         chunks >= splits * 2 * kStageChunks) {
    splits *= 2;
  }
  LaunchShape shape;
  shape.grid = dim3(tile_blocks, row_blocks, splits);
  shape.block = dim3(kThreads);
  shape.cluster_z = splits;
  return WithOutput(args.output, [&](auto output) {
    constexpr ProjectionOutput kOutput = decltype(output)::value;
    shape.shared_bytes = sizeof(typename WideBlock<T, kRowTiles, kOutput>::Shared);
    return LaunchWithShared(WideKernel<T, kRowTiles, kOutput>, shape, context, args,
                            (chunks + splits - 1) / splits, splits);
  });
}

template <typename T>
cudaError_t LaunchHalf(const ProjectionArgs& args, const LaunchContext& context) {
  return LaunchTyped<T, 8>(args, context);
}

}  // namespace

cudaError_t LaunchWideProjection(ElementType type, const ProjectionArgs& args,
                                 const LaunchContext& context) {
  return type == ElementType::kFloat16 ? LaunchHalf<__half>(args, context)
                                       : LaunchHalf<__nv_bfloat16>(args, context);
}

}  // namespace seq2seq::kernels
