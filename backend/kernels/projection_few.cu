#include <algorithm>
#include <type_traits>

#include "backend/kernels/projection_few_product.cuh"
#include "backend/kernels/projection_kernels.h"
#include "backend/kernels/projection_parts.cuh"

namespace seq2seq::kernels {
namespace {

// Output tiles from which on a block has two of them.
constexpr int kManyTiles = 200;
// What the kernels need without spilling. Fewer, so that more blocks of later stages are resident,
// made the stages slower.
template <int kRowTiles>
constexpr int kMaxRegisters = kRowTiles == 8 ? 200 : 128;
template <int kRowTiles>
constexpr int kWarpLimit = kRowTiles <= 2 ? kMaxFewRowsWarps : kMaxFewRowsWarps / 2;

// kTiles output tiles a block; see FewRowsProduct. One round of reads after the wait, one barrier.
template <typename T, int kRowTiles, int kTiles, ProjectionOutput kOutput>
__global__ void __maxnreg__(kMaxRegisters<kRowTiles>)
    FewRowsKernel(const __grid_constant__ ProjectionArgs args, int staged, int warp_vectors) {
  using Product = FewRowsProduct<T, kRowTiles, kTiles>;
  extern __shared__ uint4 shared[];
  __shared__ float factors[kRowTiles * 8];
  const int first_tile = blockIdx.x * kTiles;

  AllowNextKernel();
  Product product(args, first_tile, 0, args.rows, staged, warp_vectors, shared);
  product.FetchWeights();
  const auto make_epilogue = [&](int pair) {
    return MakeEpilogue<T, kOutput>(args, first_tile + pair / Product::kTilePairs,
                                    pair % Product::kTilePairs, 0);
  };
  auto epilogue = make_epilogue(min(static_cast<int>(threadIdx.x), Product::kPairs - 1));
  epilogue.Prepare();
  Factors<kRowTiles> row_factors(args, 0);
  TouchParameters(args);

  WaitForEarlierKernels();
  product.FetchInput();
  if (threadIdx.x < Product::kPairs) epilogue.Fetch();
  row_factors.Fetch();
  product.Multiply();
  row_factors.Store(factors);
  __syncthreads();
  const auto store = [&](auto& pair_epilogue, int pair) {
    const float2 sum = product.PairSum(pair);
    pair_epilogue.Store(sum.x, sum.y, factors[LocalRow(pair % Product::kTilePairs)]);
  };
  if (threadIdx.x < Product::kPairs) store(epilogue, threadIdx.x);
  if constexpr (Product::kPairs > kWarpLimit<kRowTiles> * 32) {
#pragma unroll 1
    for (int pair = threadIdx.x + blockDim.x; pair < Product::kPairs; pair += blockDim.x) {
      auto more = make_epilogue(pair);
      more.Prepare();
      more.Fetch();
      store(more, pair);
    }
  }
}

template <typename T, int kRowTiles, int kTiles>
cudaError_t LaunchTyped(const ProjectionArgs& args, const LaunchContext& context) {
  const int warps = ChunkCount(args.inputs) > 64 ? kWarpLimit<kRowTiles> : kMaxFewRowsWarps / 2;
  return WithOutput(args.output, [&](auto output) {
    const auto kernel = FewRowsKernel<T, kRowTiles, kTiles, decltype(output)::value>;
    size_t allowed = 0;
    const cudaError_t error = AllowSharedMemory(kernel, context, &allowed);
    if (error != cudaSuccess) return error;
    const FewRowsShape few = FewRowsShapeFor(args.inputs, warps, kRowTiles, kTiles, allowed);
    LaunchShape shape;
    shape.grid = dim3((TileCount(args.outputs) + kTiles - 1) / kTiles);
    shape.block = dim3(few.warps * 32);
    shape.shared_bytes = few.shared_bytes();
    return Launch(kernel, shape, context, args, few.staged, few.warp_vectors);
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
