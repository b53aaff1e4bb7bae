#include <algorithm>
#include <type_traits>

#include "backend/kernels/projection_kernels.h"
#include "backend/kernels/projection_parts.cuh"

namespace seq2seq::kernels {
namespace {

constexpr int kMaxWarps = 16;
// Units of weights that a warp keeps in registers and (at most, an even number) in shared memory
// before its input is ready.
constexpr int kRegisterUnits = 2;
constexpr int kMaxStagedUnits = 10;
// Output tiles from which on a block has two of them.
constexpr int kManyTiles = 200;
// Chunks of input in flight at a time: all of a warp's for few rows, so that memory is waited for
// once.
template <int kRowTiles>
constexpr int kInputChunks = kRowTiles == 1   ? 7
                             : kRowTiles == 2 ? 6
                             : kRowTiles == 4 ? 3
                                              : 2;
// What the kernels need without spilling. Fewer, so that more blocks of later stages are resident,
// made the stages slower.
template <int kRowTiles>
constexpr int kMaxRegisters = kRowTiles == 8 ? 200 : 128;
template <int kRowTiles>
constexpr int kWarpLimit = kRowTiles <= 2 ? kMaxWarps : kMaxWarps / 2;

// kTiles output tiles a block. Warp w takes chunks w, w + warps, ... of all of them; unit u of its
// weights is its chunk u / kTiles of tile u % kTiles. The first kRegisterUnits are taken to
// registers, the next `staged` to shared memory, both before the input is ready, and the rest
// after.
//
// Latency is all here: after the wait there is one round of reads, without a branch, and one
// barrier.
template <typename T, int kRowTiles, int kTiles, ProjectionOutput kOutput>
__global__ void __maxnreg__(kMaxRegisters<kRowTiles>)
    FewRowsKernel(const __grid_constant__ ProjectionArgs args, int staged, int warp_vectors) {
  constexpr int kInputs = kInputChunks<kRowTiles>;
  constexpr int kTilePairs = 64 * kRowTiles;
  constexpr int kPairs = kTilePairs * kTiles;
  static_assert(kRegisterUnits % kTiles == 0 && kInputs >= kRegisterUnits / kTiles);
  extern __shared__ uint4 shared[];
  __shared__ float factors[kRowTiles * 8];
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int warps = blockDim.x / 32;
  const int chunks = ChunkCount(args.inputs);
  const int own_chunks = (chunks - warp + warps - 1) / warps;
  const int first_tile = blockIdx.x * kTiles;
  const int last_tile = TileCount(args.outputs) - 1;
  uint4* own = shared + warp * warp_vectors;

  AllowNextKernel();
  const uint4* tile_weights[kTiles];
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    tile_weights[tile] =
        static_cast<const uint4*>(args.weights) + lane +
        (int64_t{min(first_tile + tile, last_tile)} * chunks + warp) * kChunkVectors;
  }
  const int weight_step = warps * kChunkVectors;
  uint4 low[kRegisterUnits];
  uint4 high[kRegisterUnits];
#pragma unroll
  for (int u = 0; u < kRegisterUnits; ++u) {
    const uint4* vectors = tile_weights[u % kTiles] + u / kTiles * weight_step;
    const bool there = u / kTiles < own_chunks;
    low[u] = there ? LoadStreaming(vectors) : uint4{};
    high[u] = there ? LoadStreaming(vectors + 32) : uint4{};
  }
#pragma unroll 2
  for (int i = kRegisterUnits / kTiles; i < min(own_chunks, (kRegisterUnits + staged) / kTiles);
       ++i) {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const uint4* vectors = tile_weights[tile] + i * weight_step;
      uint4* place = own + (i * kTiles + tile - kRegisterUnits) * kChunkVectors + lane;
      CopyToSharedAsync(place, vectors);
      CopyToSharedAsync(place + 32, vectors + 32);
    }
  }
  CommitSharedCopies();
  const auto make_epilogue = [&](int pair) {
    return MakeEpilogue<T, kOutput>(args, first_tile + pair / kTilePairs, pair % kTilePairs, 0);
  };
  auto epilogue = make_epilogue(min(static_cast<int>(threadIdx.x), kPairs - 1));
  epilogue.Prepare();
  Factors<kRowTiles> row_factors(args, 0);
  // Rows beyond the last read the first one, chunks beyond the last the last one (times zero).
  const uint4* input_rows[kRowTiles];
#pragma unroll
  for (int i = 0; i < kRowTiles; ++i) {
    const int row = i * 8 + lane / 4;
    input_rows[i] =
        static_cast<const uint4*>(args.input) + (row < args.rows ? row : 0) * 4 + lane % 4;
  }
  const int row_vectors = args.row_capacity * 4;
  const auto load_input = [&](int i, uint4(&input)[kRowTiles]) {
    const int offset = min(warp + i * warps, chunks - 1) * row_vectors;
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) input[r] = LoadFresh(input_rows[r] + offset);
  };
  TouchParameters(args);

  WaitForEarlierKernels();
  uint4 input[kInputs][kRowTiles];
#pragma unroll
  for (int i = 0; i < kInputs; ++i) load_input(i, input[i]);
  epilogue.Fetch();
  row_factors.Fetch();

  Sums<T, kRowTiles> sums[kTiles];
#pragma unroll
  for (int u = 0; u < kRegisterUnits; ++u) {
    sums[u % kTiles].Add(low[u], high[u], input[u / kTiles]);
  }
  WaitForSharedCopies<0>();
  const int kept = min(own_chunks, (kRegisterUnits + staged) / kTiles);
  const auto add_staged = [&](int i, const uint4(&chunk_input)[kRowTiles]) {
    const uint4* vectors = own + (i * kTiles - kRegisterUnits) * kChunkVectors + lane;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      sums[tile].Add(vectors[tile * kChunkVectors], vectors[tile * kChunkVectors + 32],
                     chunk_input);
    }
  };
#pragma unroll
  for (int i = kRegisterUnits / kTiles; i < kInputs; ++i) {
    if (i < kept) add_staged(i, input[i]);
  }
  constexpr int kMoreInputs = kInputs < 3 ? kInputs : 3;
#pragma unroll 1
  for (int first = kInputs; first < kept; first += kMoreInputs) {
#pragma unroll
    for (int i = 0; i < kMoreInputs; ++i) load_input(first + i, input[i]);
#pragma unroll
    for (int i = 0; i < kMoreInputs; ++i) {
      if (first + i < kept) add_staged(first + i, input[i]);
    }
  }
#pragma unroll 2
  for (int i = (kRegisterUnits + staged) / kTiles; i < own_chunks; ++i) {
    load_input(i, input[0]);
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const uint4* vectors = tile_weights[tile] + i * weight_step;
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
  const auto store = [&](auto& pair_epilogue, int pair) {
    const float* pair_sums = reinterpret_cast<const float*>(shared) + SumOffset(pair);
    float low_sum = 0.0F;
    float high_sum = 0.0F;
#pragma unroll 8
    for (int w = 0; w < warps; ++w) {
      low_sum += pair_sums[w * warp_vectors * 4];
      high_sum += pair_sums[w * warp_vectors * 4 + 2];
    }
    pair_epilogue.Store(low_sum, high_sum, factors[LocalRow(pair % kTilePairs)]);
  };
  if (threadIdx.x < kPairs) store(epilogue, threadIdx.x);
  if constexpr (kPairs > kWarpLimit<kRowTiles> * 32) {
#pragma unroll 1
    for (int pair = threadIdx.x + blockDim.x; pair < kPairs; pair += blockDim.x) {
      auto more = make_epilogue(pair);
      more.Prepare();
      more.Fetch();
      store(more, pair);
    }
  }
}

template <typename T, int kRowTiles, int kTiles>
cudaError_t LaunchTyped(const ProjectionArgs& args, const LaunchContext& context) {
  const int chunks = ChunkCount(args.inputs);
  const int warps = chunks > 64 ? kWarpLimit<kRowTiles> : kMaxWarps / 2;
  const int units = (chunks + warps - 1) / warps * kTiles;
  const int staged = std::clamp(units - kRegisterUnits, 0, kMaxStagedUnits);
  const int warp_vectors = std::max(staged * kChunkVectors, kTiles * kRowTiles * 32);
  LaunchShape shape;
  shape.grid = dim3((TileCount(args.outputs) + kTiles - 1) / kTiles);
  shape.block = dim3(warps * 32);
  shape.shared_bytes = size_t{16} * warp_vectors * warps;
  return WithOutput(args.output, [&](auto output) {
    return LaunchWithShared(FewRowsKernel<T, kRowTiles, kTiles, decltype(output)::value>, shape,
                            context, args, staged, warp_vectors);
  });
}

template <typename T, int kRowTiles>
cudaError_t LaunchTiles(const ProjectionArgs& args, const LaunchContext& context) {
  return TileCount(args.outputs) >= kManyTiles ? LaunchTyped<T, kRowTiles, 2>(args, context)
                                               : LaunchTyped<T, kRowTiles, 1>(args, context);
}

template <typename T>
cudaError_t LaunchHalf(const ProjectionArgs& args, const LaunchContext& context) {
  if (args.rows <= 8) return LaunchTiles<T, 1>(args, context);
  if (args.rows <= 16) return LaunchTiles<T, 2>(args, context);
  if (args.rows <= 32) return LaunchTiles<T, 4>(args, context);
  return LaunchTiles<T, 8>(args, context);
}

}  // namespace

cudaError_t LaunchFewRowsProjection(ElementType type, const ProjectionArgs& args,
                                    const LaunchContext& context) {
  return type == ElementType::kFloat16 ? LaunchHalf<__half>(args, context)
                                       : LaunchHalf<__nv_bfloat16>(args, context);
}

}  // namespace seq2seq::kernels
