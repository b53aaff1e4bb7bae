#include "backend/kernels/projection.h"

#include <cooperative_groups.h>

#include <algorithm>

#include "backend/kernels/device_math.cuh"
#include "backend/kernels/projection_epilogue.cuh"

namespace seq2seq::kernels {
namespace {

// A chunk of weights, 16 outputs x 32 inputs, is 64 vectors for half types: lane g * 4 + t holds
// inputs 8 t .. 8 t + 7 of output g (first half) and of output g + 8 (second half). That is two
// mma.m16n8k16 A operands with the inputs permuted the same way as the B operands read below.
constexpr int kChunkVectors = 64;
constexpr int kChunkFloats = kTileOutputs * kChunkInputs;
constexpr int kMaxWarps = 16;
// Blocks of WideProjectionKernel that are resident at once, two a multiprocessor.
constexpr int kWideBlocks = 264;
// A block of WideProjectionKernel: output tiles, chunks of inputs at a time, and how many such stages.
constexpr int kWideWarps = 8;
constexpr int kWideTiles = 4;
constexpr int kStageChunks = 2;
constexpr int kStages = 5;
// Chunks of weights that a warp keeps in registers and (at most, an even number) in shared memory before
// its input is ready.
constexpr int kRegisterChunks = 2;
constexpr int kMaxStagedChunks = 10;
// Output tiles from which on a block has two of them.
constexpr int kManyTiles = 200;
// Chunks of input in flight at a time: all of a warp's for few rows, so that memory is waited for once.
template <int kRowTiles>
constexpr int kInputChunks = kRowTiles == 1 ? 8 : 4;

__global__ void PackKernel(PackArgs args, int chunks) {
  const int64_t total = int64_t{args.rows} * args.columns;
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < total;
       i += int64_t{gridDim.x} * blockDim.x) {
    const int row = static_cast<int>(i / args.columns);
    const int k = static_cast<int>(i % args.columns);
    float value = 0.0F;
    if (args.source_type == ElementType::kFloat32) {
      value = static_cast<const float*>(args.source)[i];
    } else if (args.source_type == ElementType::kFloat16) {
      value = ToFloat(static_cast<const __half*>(args.source)[i]);
    } else {
      value = ToFloat(static_cast<const __nv_bfloat16*>(args.source)[i]);
    }
    const int output = args.paired ? row / 8 * 16 + args.half * 8 + row % 8
                                   : args.first_output + row;
    const int64_t chunk = int64_t{output / kTileOutputs} * chunks + k / kChunkInputs;
    const int r = output % kTileOutputs;
    const int kk = k % kChunkInputs;
    if (args.packed_type == ElementType::kFloat32) {
      static_cast<float*>(args.packed)[chunk * kChunkFloats + r * kChunkInputs + kk] = value;
      continue;
    }
    const int64_t place = chunk * kChunkFloats + r / 8 * 256 + (r % 8 * 4 + kk / 8) * 8 + kk % 8;
    if (args.packed_type == ElementType::kFloat16) {
      static_cast<__half*>(args.packed)[place] = FromFloat<__half>(value);
    } else {
      static_cast<__nv_bfloat16*>(args.packed)[place] = FromFloat<__nv_bfloat16>(value);
    }
  }
}

// RMSNorm's factor and the output scale for a block's rows, one warp a row at a time.
template <int kRowTiles>
class Factors {
 public:
  // Blocks have 8 warps at least, so this many rows a warp at most.
  static constexpr int kMinWarps = 8;
  static constexpr int kRows = kRowTiles * 8 / kMinWarps;

  __device__ Factors(const ProjectionArgs& args, int first_row)
      : args_(args), first_row_(first_row) {}

  // Reads what earlier kernels wrote.
  __device__ __forceinline__ void Fetch() {
    const RowFactor& factor = args_.factor;
    if (factor.sum_squares == nullptr) return;
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int row = first_row_ + Local(i);
      if (Local(i) >= kRowTiles * 8 || row >= args_.rows) continue;
      const float* sums = factor.sum_squares + int64_t{row} * factor.sum_stride;
#pragma unroll 3
      for (int part = lane; part < factor.parts; part += 32) sums_[i] += __ldcg(sums + part);
      scales_[i] = __ldcg(factor.scale_in + row);
    }
  }

  __device__ __forceinline__ void Store(float* shared) {
    const RowFactor& factor = args_.factor;
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int row = first_row_ + Local(i);
      if (Local(i) >= kRowTiles * 8) continue;
      if (factor.sum_squares == nullptr || row >= args_.rows) {
        if (lane == 0) shared[Local(i)] = factor.output_scale;
        continue;
      }
      const float sum = WarpSum(sums_[i]);
      if (lane != 0) continue;
      const float scale = rsqrtf(sum * factor.inverse_width + factor.epsilon);
      shared[Local(i)] = scale / scales_[i] * factor.output_scale;
      if (blockIdx.x == 0) factor.scale_out[row] = scale;
    }
  }

 private:
  __device__ int Local(int i) const { return threadIdx.x / 32 + i * (blockDim.x / 32); }

  const ProjectionArgs& args_;
  int first_row_;
  float sums_[kRows] = {};
  float scales_[kRows] = {};
};

// Pair p of a tile's outputs; a warp's 32 pairs are the 32 lanes of an accumulator.
template <typename T>
__device__ Epilogue<T> MakeEpilogue(const ProjectionArgs& args, int tile, int p, int first_row) {
  const int lane = p % 32;
  return Epilogue<T>(args, tile, lane / 4, first_row + p / 64 * 8 + lane % 4 * 2 + p / 32 % 2);
}

// Adds up the warps' sums of pair p. sums: [warp][warp_stride] of [row tile][lane][4], laid out as mma
// accumulators.
__device__ __forceinline__ void StorePair(auto& epilogue, const float* sums, int warp_stride,
                                          const float* factors, int p) {
  const int warps = blockDim.x / 32;
  const float* sum = sums + (p / 64 * 32 + p % 32) * 4 + p / 32 % 2;
  float low = 0.0F;
  float high = 0.0F;
#pragma unroll 8
  for (int w = 0; w < warps; ++w) {
    low += sum[w * warp_stride];
    high += sum[w * warp_stride + 2];
  }
  epilogue.Store(low, high, factors[p / 64 * 8 + p % 4 * 2 + p / 32 % 2]);
}

// The B operands of one chunk: lane g * 4 + t reads inputs 8 t .. 8 t + 7 of row g of each row tile.
template <int kRowTiles>
__device__ __forceinline__ void LoadInput(const ProjectionArgs& args, int chunk, int chunks,
                                          int first_row, uint4 (&input)[kRowTiles]) {
  const int lane = threadIdx.x % 32;
  const uint4* vectors = static_cast<const uint4*>(args.input);
#pragma unroll
  for (int i = 0; i < kRowTiles; ++i) {
    const int row = first_row + i * 8 + lane / 4;
    input[i] = row < args.rows && chunk < chunks
                   ? __ldcg(vectors + (int64_t{chunk} * args.row_capacity + row) * 4 + lane % 4)
                   : uint4{};
  }
}

template <typename T, int kRowTiles>
struct Sums {
  // Two chains of sums where there is one row tile: a chain alone would wait for itself.
  static constexpr int kChains = kRowTiles == 1 ? 2 : 1;

  __device__ __forceinline__ void Add(const uint4& low, const uint4& high,
                                      const uint4 (&input)[kRowTiles]) {
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
      MultiplyTile<T>(values[0][i], low.x, high.x, low.y, high.y, input[i].x, input[i].y);
      MultiplyTile<T>(values[kChains - 1][i], low.z, high.z, low.w, high.w, input[i].z,
                      input[i].w);
    }
  }

  __device__ __forceinline__ void Store(float4* shared) const {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
      float total[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        total[k] = values[0][i][k] + (kChains == 2 ? values[kChains - 1][i][k] : 0.0F);
      }
      shared[i * 32 + lane] = make_float4(total[0], total[1], total[2], total[3]);
    }
  }

  float values[kChains][kRowTiles][4] = {};
};

// kTiles output tiles a block. Warp w takes chunks w, w + warps, ... of all of them; unit u of its weights
// is its chunk u / kTiles of tile u % kTiles. The first kRegisterChunks units are taken to registers,
// the next `staged` to shared memory, both before the input is ready, and the rest after.
template <typename T, int kRowTiles, int kTiles>
__global__ void __launch_bounds__(kMaxWarps * 32)
    ProjectionKernel(const __grid_constant__ ProjectionArgs args, int staged, int warp_vectors) {
  constexpr int kInputs = kInputChunks<kRowTiles>;
  constexpr int kPairs = 64 * kRowTiles * kTiles;
  static_assert(kRegisterChunks % kTiles == 0 && kInputs >= kRegisterChunks / kTiles);
  extern __shared__ uint4 shared[];
  __shared__ float factors[kRowTiles * 8];
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int warps = blockDim.x / 32;
  const int chunks = ChunkCount(args.inputs);
  const int first_tile = blockIdx.x * kTiles;
  const int tiles = TileCount(args.outputs);
  uint4* own = shared + warp * warp_vectors;

  AllowNextKernel();
  const auto unit = [&](int u) {
    const int tile = min(first_tile + u % kTiles, tiles - 1);
    return static_cast<const uint4*>(args.weights) + lane +
           (int64_t{tile} * chunks + warp + u / kTiles * warps) * kChunkVectors;
  };
  const auto unit_exists = [&](int u) { return warp + u / kTiles * warps < chunks; };
  uint4 low[kRegisterChunks];
  uint4 high[kRegisterChunks];
#pragma unroll
  for (int u = 0; u < kRegisterChunks; ++u) {
    const uint4* vectors = unit(u);
    low[u] = unit_exists(u) ? LoadStreaming(vectors) : uint4{};
    high[u] = unit_exists(u) ? LoadStreaming(vectors + 32) : uint4{};
  }
  for (int i = 0; i < staged; ++i) {
    if (!unit_exists(kRegisterChunks + i)) break;
    const uint4* vectors = unit(kRegisterChunks + i);
    CopyToSharedAsync(own + i * kChunkVectors + lane, vectors);
    CopyToSharedAsync(own + i * kChunkVectors + 32 + lane, vectors + 32);
  }
  CommitSharedCopies();
  const int pair = threadIdx.x;
  const int p = pair % (64 * kRowTiles);
  Epilogue<T> epilogue = MakeEpilogue<T>(args, first_tile + pair / (64 * kRowTiles), p, 0);
  if (pair < kPairs) epilogue.Prepare();
  Factors<kRowTiles> row_factors(args, 0);
  TouchParameters(args);

  WaitForEarlierKernels();
  const int kept = (kRegisterChunks + staged) / kTiles;  // chunks
  uint4 input[kInputs][kRowTiles];
#pragma unroll
  for (int i = 0; i < kInputs; ++i) {
    LoadInput<kRowTiles>(args, warp + i * warps, i < kept ? chunks : 0, 0, input[i]);
  }
  if (pair < kPairs) epilogue.Fetch();
  row_factors.Fetch();

  Sums<T, kRowTiles> sums[kTiles];
#pragma unroll
  for (int u = 0; u < kRegisterChunks; ++u) {
    sums[u % kTiles].Add(low[u], high[u], input[u / kTiles]);
  }
  WaitForSharedCopies<0>();
  const auto add_staged = [&](int i, const uint4(&chunk_input)[kRowTiles]) {
    const uint4* vectors = own + (i * kTiles - kRegisterChunks) * kChunkVectors + lane;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      sums[tile].Add(vectors[tile * kChunkVectors], vectors[tile * kChunkVectors + 32], chunk_input);
    }
  };
#pragma unroll
  for (int i = kRegisterChunks / kTiles; i < kInputs; ++i) {
    if (i < kept && warp + i * warps < chunks) add_staged(i, input[i]);
  }
  for (int i = kInputs; i < kept; ++i) {
    if (warp + i * warps >= chunks) break;
    LoadInput<kRowTiles>(args, warp + i * warps, chunks, 0, input[0]);
    add_staged(i, input[0]);
  }
#pragma unroll 2
  for (int chunk = warp + kept * warps; chunk < chunks; chunk += warps) {
    LoadInput<kRowTiles>(args, chunk, chunks, 0, input[0]);
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const uint4* vectors = unit((chunk - warp) / warps * kTiles + tile);
      sums[tile].Add(LoadStreaming(vectors), LoadStreaming(vectors + 32), input[0]);
    }
  }
  __syncwarp();  // the sums take the place of weights that other lanes of this warp may still read
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    sums[tile].Store(reinterpret_cast<float4*>(own) + tile * kRowTiles * 32);
  }
  row_factors.Store(factors);
  __syncthreads();
  if (pair >= kPairs) return;
  const float* tile_sums =
      reinterpret_cast<const float*>(shared) + pair / (64 * kRowTiles) * kRowTiles * 128;
  StorePair(epilogue, tile_sums, warp_vectors * 4, factors, p);
}

// 64 outputs of up to 64 rows, over one cluster block's share of the inputs. Warp w has output tile w % 4
// and every second chunk, from w / 4 on.
template <typename T, int kRowTiles>
class WideBlock {
 public:
  static constexpr int kWarps = kWideWarps;
  static constexpr int kHalves = kWarps / kWideTiles;
  static constexpr int kPairs = kWideTiles * kRowTiles * 64;
  static_assert(kHalves == kStageChunks);

  struct Stage {
    uint4 weights[kStageChunks][kWideTiles][kChunkVectors];
    uint4 input[kStageChunks][kRowTiles * 8][4];
  };
  struct Shared {
    union {
      Stage stages[kStages];
      float4 sums[kHalves][kWideTiles][kRowTiles][32];
    };
    float factors[kRowTiles * 8];
  };

  __device__ WideBlock(const ProjectionArgs& args, int split_chunks, Shared* shared)
      : args_(args), shared_(shared), chunks_(ChunkCount(args.inputs)),
        first_row_(blockIdx.y * kRowTiles * 8), begin_(blockIdx.z * split_chunks),
        end_(min(chunks_, begin_ + split_chunks)) {}

  __device__ void Run() {
    const int stages = max(0, (end_ - begin_ + kStageChunks - 1) / kStageChunks);
    for (int s = 0; s < min(stages, kStages - 1); ++s) FetchWeights(s);
    CommitSharedCopies();
    TouchParameters(args_);
    WaitForEarlierKernels();
    for (int s = 0; s < kStages - 1; ++s) {
      if (s < stages) FetchInput(s);
      CommitSharedCopies();
    }
    Factors<kRowTiles> row_factors(args_, first_row_);
    row_factors.Fetch();
    row_factors.Store(shared_->factors);
    for (int s = 0; s < stages; ++s) {
      WaitForSharedCopies<kStages - 2>();
      __syncthreads();
      const int next = s + kStages - 1;
      if (next < stages) {
        FetchWeights(next);
        FetchInput(next);
      }
      CommitSharedCopies();
      Multiply(shared_->stages[s % kStages]);
    }
    WaitForSharedCopies<0>();
    __syncthreads();
    const int warp = threadIdx.x / 32;
    sums_.Store(&shared_->sums[warp / kWideTiles][warp % kWideTiles][0][0]);
  }

  // Hands on this block's share of the pairs, summed over the cluster's blocks. shared_of(rank) is the
  // shared memory of one.
  template <typename SharedOf>
  __device__ void Finish(int splits, SharedOf shared_of) {
    // All of a thread's pairs read what they need before the first of them is handed on.
    constexpr int kAtOnce = 4;
    const int share = kPairs / splits;
    for (int first = threadIdx.x; first < share; first += kAtOnce * kWarps * 32) {
      Epilogue<T> epilogues[kAtOnce] = {At(share, first, 0), At(share, first, 1),
                                        At(share, first, 2), At(share, first, 3)};
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        epilogues[i].Prepare();
        epilogues[i].Fetch();
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int q = first + i * kWarps * 32;
        if (q >= share) continue;
        const int pair = blockIdx.z * share + q;
        const int p = pair % (kRowTiles * 64);
        float low = 0.0F;
        float high = 0.0F;
        for (int rank = 0; rank < splits; ++rank) {
          const Shared* other = shared_of(rank);
#pragma unroll
          for (int half = 0; half < kHalves; ++half) {
            const float* sum = reinterpret_cast<const float*>(
                                   &other->sums[half][pair / (kRowTiles * 64)][p / 64][p % 32]) +
                               p / 32 % 2;
            low += sum[0];
            high += sum[2];
          }
        }
        epilogues[i].Store(low, high, shared_->factors[p / 64 * 8 + p % 4 * 2 + p / 32 % 2]);
      }
    }
  }

 private:
  // What hands on the thread's i-th pair from `first` on; one that does nothing past the share's end.
  __device__ Epilogue<T> At(int share, int first, int i) const {
    const int q = first + i * kWarps * 32;
    const int pair = blockIdx.z * share + q;
    const int tile = q < share ? blockIdx.x * kWideTiles + pair / (kRowTiles * 64)
                               : TileCount(args_.outputs);
    return MakeEpilogue<T>(args_, tile, pair % (kRowTiles * 64), first_row_);
  }

  __device__ void FetchWeights(int s) {
    Stage& stage = shared_->stages[s % kStages];
    const uint4* weights = static_cast<const uint4*>(args_.weights);
    const int tiles = TileCount(args_.outputs);
    for (int v = threadIdx.x; v < kStageChunks * kWideTiles * kChunkVectors; v += blockDim.x) {
      const int local = v / (kWideTiles * kChunkVectors);
      const int local_tile = v / kChunkVectors % kWideTiles;
      const int chunk = begin_ + s * kStageChunks + local;
      const int tile = blockIdx.x * kWideTiles + local_tile;
      uint4* destination = &stage.weights[local][local_tile][v % kChunkVectors];
      if (chunk < end_ && tile < tiles) {
        CopyToSharedAsync(destination, weights + (int64_t{tile} * chunks_ + chunk) * kChunkVectors +
                                           v % kChunkVectors);
      } else {
        *destination = uint4{};
      }
    }
  }

  __device__ void FetchInput(int s) {
    Stage& stage = shared_->stages[s % kStages];
    const uint4* input = static_cast<const uint4*>(args_.input);
    for (int v = threadIdx.x; v < kStageChunks * kRowTiles * 32; v += blockDim.x) {
      const int local = v / (kRowTiles * 32);
      const int local_row = v / 4 % (kRowTiles * 8);
      const int chunk = begin_ + s * kStageChunks + local;
      uint4* destination = &stage.input[local][local_row][v % 4];
      if (chunk < end_ && first_row_ + local_row < args_.rows) {
        CopyToSharedAsync(
            destination,
            input + (int64_t{chunk} * args_.row_capacity + first_row_ + local_row) * 4 + v % 4);
      } else {
        *destination = uint4{};
      }
    }
  }

  __device__ void Multiply(const Stage& stage) {
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const uint4* weights = stage.weights[warp / kWideTiles][warp % kWideTiles];
    uint4 input[kRowTiles];
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
      input[i] = stage.input[warp / kWideTiles][i * 8 + lane / 4][lane % 4];
    }
    sums_.Add(weights[lane], weights[32 + lane], input);
  }

  const ProjectionArgs& args_;
  Shared* shared_;
  int chunks_;
  int first_row_;
  int begin_;
  int end_;
  Sums<T, kRowTiles> sums_;
};

template <typename T, int kRowTiles>
__global__ void __launch_bounds__(kWideWarps * 32, 2)
    WideProjectionKernel(const __grid_constant__ ProjectionArgs args, int split_chunks, int splits) {
  using Shared = typename WideBlock<T, kRowTiles>::Shared;
  extern __shared__ uint4 shared[];
  auto* own = reinterpret_cast<Shared*>(shared);
  AllowNextKernel();
  WideBlock<T, kRowTiles> block(args, split_chunks, own);
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

// The same in float, for parity: lane g * 4 + t sums outputs g, g + 8 of rows 2 t, 2 t + 1.
__global__ void __launch_bounds__(256)
    ProjectionFloatKernel(const __grid_constant__ ProjectionArgs args) {
  __shared__ float sums[8 * 32 * 4];
  __shared__ float factors[8];
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int group = lane / 4;
  const int chunks = ChunkCount(args.inputs);
  const int first_row = blockIdx.y * 8;
  const int row = first_row + lane % 4 * 2;
  const float* weights =
      static_cast<const float*>(args.weights) + int64_t{blockIdx.x} * chunks * kChunkFloats;
  AllowNextKernel();
  WaitForEarlierKernels();
  float sum[4] = {};
  for (int chunk = warp; chunk < chunks; chunk += blockDim.x / 32) {
    const float* low = weights + int64_t{chunk} * kChunkFloats + group * kChunkInputs;
    const float* high = low + 8 * kChunkInputs;
    const float* input = static_cast<const float*>(args.input) +
                         (int64_t{chunk} * args.row_capacity + row) * kChunkInputs;
    for (int k = 0; k < kChunkInputs; ++k) {
      const float first = row < args.rows ? __ldcg(input + k) : 0.0F;
      const float second = row + 1 < args.rows ? __ldcg(input + kChunkInputs + k) : 0.0F;
      sum[0] += low[k] * first;
      sum[1] += low[k] * second;
      sum[2] += high[k] * first;
      sum[3] += high[k] * second;
    }
  }
  Factors<1> row_factors(args, first_row);
  row_factors.Fetch();
  row_factors.Store(factors);
  reinterpret_cast<float4*>(sums)[threadIdx.x] = make_float4(sum[0], sum[1], sum[2], sum[3]);
  __syncthreads();
  if (threadIdx.x >= 64) return;
  Epilogue<float> epilogue = MakeEpilogue<float>(args, blockIdx.x, threadIdx.x, first_row);
  epilogue.Prepare();
  epilogue.Fetch();
  StorePair(epilogue, sums, 32 * 4, factors, threadIdx.x);
}

template <typename T, int kRowTiles, int kTiles>
cudaError_t LaunchFew(const ProjectionArgs& args, const LaunchContext& context) {
  const int chunks = ChunkCount(args.inputs);
  const int warps = chunks > 64 ? kMaxWarps : kMaxWarps / 2;
  const int units = (chunks + warps - 1) / warps * kTiles;
  const int staged = std::clamp(units - kRegisterChunks, 0, kMaxStagedChunks);
  const int warp_vectors = std::max(staged * kChunkVectors, kTiles * kRowTiles * 32);
  LaunchShape shape;
  shape.grid = dim3((TileCount(args.outputs) + kTiles - 1) / kTiles);
  shape.block = dim3(warps * 32);
  shape.shared_bytes = size_t{16} * warp_vectors * warps;
  return Launch(ProjectionKernel<T, kRowTiles, kTiles>, shape, context, args, staged, warp_vectors);
}

template <typename T, int kRowTiles>
cudaError_t LaunchFew(const ProjectionArgs& args, const LaunchContext& context) {
  return TileCount(args.outputs) >= kManyTiles ? LaunchFew<T, kRowTiles, 2>(args, context)
                                               : LaunchFew<T, kRowTiles, 1>(args, context);
}

template <typename T, int kRowTiles>
cudaError_t LaunchWide(const ProjectionArgs& args, const LaunchContext& context) {
  const int chunks = ChunkCount(args.inputs);
  const int tile_blocks = (TileCount(args.outputs) + kWideTiles - 1) / kWideTiles;
  const int row_blocks = (args.rows + kRowTiles * 8 - 1) / (kRowTiles * 8);
  int splits = 1;
  while (splits < args.max_splits && tile_blocks * row_blocks * splits * 2 <= kWideBlocks &&
         chunks >= splits * 2 * kStageChunks) {
    splits *= 2;
  }
  LaunchShape shape;
  shape.grid = dim3(tile_blocks, row_blocks, splits);
  shape.block = dim3(kWideWarps * 32);
  shape.shared_bytes = sizeof(typename WideBlock<T, kRowTiles>::Shared);
  shape.cluster_z = splits;
  return Launch(WideProjectionKernel<T, kRowTiles>, shape, context, args,
                (chunks + splits - 1) / splits, splits);
}

template <typename T>
cudaError_t LaunchHalf(const ProjectionArgs& args, const LaunchContext& context) {
  if (args.rows <= 8) return LaunchFew<T, 1>(args, context);
  if (args.rows <= 16) return LaunchFew<T, 2>(args, context);
  if (args.rows <= 32) return LaunchWide<T, 4>(args, context);
  return LaunchWide<T, 8>(args, context);
}

cudaError_t AllowSharedMemory(auto* kernel, size_t bytes) {
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(bytes));
}

template <typename T>
cudaError_t AllowSharedMemoryForAll() {
  constexpr size_t kFewBytes = size_t{16} * kMaxWarps * kMaxStagedChunks * kChunkVectors;
  for (const cudaError_t error :
       {AllowSharedMemory(ProjectionKernel<T, 1, 1>, kFewBytes),
        AllowSharedMemory(ProjectionKernel<T, 1, 2>, kFewBytes),
        AllowSharedMemory(ProjectionKernel<T, 2, 1>, kFewBytes),
        AllowSharedMemory(ProjectionKernel<T, 2, 2>, kFewBytes),
        AllowSharedMemory(WideProjectionKernel<T, 4>, sizeof(typename WideBlock<T, 4>::Shared)),
        AllowSharedMemory(WideProjectionKernel<T, 8>, sizeof(typename WideBlock<T, 8>::Shared))}) {
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace

cudaError_t LaunchPack(const PackArgs& args, const LaunchContext& context) {
  return Launch(PackKernel, {dim3(1024), dim3(256)}, context, args, ChunkCount(args.columns));
}

cudaError_t LaunchProjection(ElementType type, const ProjectionArgs& args,
                             const LaunchContext& context) {
  switch (type) {
    case ElementType::kFloat32:
      return Launch(ProjectionFloatKernel, {dim3(TileCount(args.outputs), (args.rows + 7) / 8), dim3(256)},
                    context, args);
    case ElementType::kFloat16:
      return LaunchHalf<__half>(args, context);
    case ElementType::kBFloat16:
      return LaunchHalf<__nv_bfloat16>(args, context);
  }
  return cudaErrorInvalidValue;
}

cudaError_t PrepareProjections() {
  const cudaError_t error = AllowSharedMemoryForAll<__half>();
  return error != cudaSuccess ? error : AllowSharedMemoryForAll<__nv_bfloat16>();
}

}  // namespace seq2seq::kernels
