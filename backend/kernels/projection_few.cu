#include <algorithm>
#include <type_traits>

#include "backend/kernels/projection_few_product.cuh"
#include "backend/kernels/projection_kernels.h"
#include "backend/kernels/projection_parts.cuh"

namespace seq2seq::kernels {
namespace {

// Output tiles from which on a block has two of them.
constexpr int kManyTiles = 200;
// What the kernels need to spill next to nothing. Fewer, so that more blocks of later stages are
// resident, made the stages slower. Up to 8 rows a block of attention has room beside two of these.
template <int kRowTiles>
constexpr int kMaxRegisters = kRowTiles == 8   ? 200
                              : kRowTiles == 1 ? 104
                                               : 128;
// kTiles output tiles a block; see FewRowsProduct. One round of reads after the wait, one barrier.
// The parameters that weights are fetched by come first: they share a line of the constant cache,
// which is cold at every launch.
template <typename T, int kWarps, int kRowTiles, int kTiles, ProjectionOutput kOutput>
__global__ void __maxnreg__(kMaxRegisters<kRowTiles>)
    FewRowsKernel(int staged, int warp_vectors, const __grid_constant__ ProjectionArgs args) {
  using Product = FewRowsProduct<T, kWarps, kRowTiles, kTiles>;
  extern __shared__ uint4 shared[];
  __shared__ float factors[kRowTiles * 8];
  const int first_tile = static_cast<int>(blockIdx.x) * kTiles;

  AllowNextKernel();
  Product product(args, first_tile, 0, args.rows, staged, warp_vectors, shared);
  product.FetchWeights();
  const auto make_epilogue = [&](uint32_t pair) {
    return MakeEpilogue<T, kOutput>(args, first_tile + Quotient(pair, Product::kTilePairs),
                                    pair % Product::kTilePairs, 0);
  };
  auto epilogue = make_epilogue(threadIdx.x % Product::kPairs);
  if (threadIdx.x < Product::kPairs) epilogue.Prepare();
  Factors<kRowTiles, kWarps> row_factors(args, 0);
  TouchParameters(args);

  WaitForEarlierKernels();
  product.FetchInput();
  if (threadIdx.x < Product::kPairs) epilogue.Fetch();
  row_factors.Fetch();
  row_factors.Reduce();
  product.Multiply();
  row_factors.Store(factors);
  __syncthreads();
  const auto store = [&](auto& pair_epilogue, uint32_t pair) {
    const float2 sum = product.PairSum(pair);
    pair_epilogue.Store(sum.x, sum.y, factors[LocalRow(pair % Product::kTilePairs)]);
  };
  if (threadIdx.x < Product::kPairs) store(epilogue, threadIdx.x);
  if constexpr (Product::kPairs > kWarps * 32) {
#pragma unroll 1
    for (int pair = threadIdx.x + kWarps * 32; pair < Product::kPairs; pair += kWarps * 32) {
      auto more = make_epilogue(pair);
      more.Prepare();
      more.Fetch();
      store(more, pair);
    }
  }
}

template <typename T, int kWarps, int kRowTiles, int kTiles>
cudaError_t LaunchTyped(const ProjectionArgs& args, const LaunchContext& context) {
  return WithOutput(args.output, [&](auto output) {
    const auto kernel = FewRowsKernel<T, kWarps, kRowTiles, kTiles, decltype(output)::value>;
    size_t allowed = 0;
    const cudaError_t error = AllowSharedMemory(kernel, context, &allowed);
    if (error != cudaSuccess) return error;
    const FewRowsShape few = FewRowsShapeFor(args.inputs, kWarps, kRowTiles, kTiles, allowed);
    LaunchShape shape;
    shape.grid = dim3((TileCount(args.outputs) + kTiles - 1) / kTiles);
    shape.block = dim3(few.warps * 32);
    shape.shared_bytes = few.shared_bytes();
    return Launch(kernel, shape, context, few.staged, few.warp_vectors, args);
  });
}

template <typename T, int kWarps, int kRowTiles>
cudaError_t LaunchTiles(const ProjectionArgs& args, const LaunchContext& context) {
  return TileCount(args.outputs) >= kManyTiles
             ? LaunchTyped<T, kWarps, kRowTiles, 2>(args, context)
             : LaunchTyped<T, kWarps, kRowTiles, 1>(args, context);
}

template <typename T, int kRowTiles>
cudaError_t LaunchWarps(const ProjectionArgs& args, const LaunchContext& context) {
  if constexpr (kRowTiles <= 2) {
    if (ChunkCount(args.inputs) > 64) {
      return LaunchTiles<T, kMaxFewRowsWarps, kRowTiles>(args, context);
    }
  }
  return LaunchTiles<T, kMaxFewRowsWarps / 2, kRowTiles>(args, context);
}

template <typename T>
cudaError_t LaunchHalf(const ProjectionArgs& args, const LaunchContext& context) {
  if (args.rows <= 8) return LaunchWarps<T, 1>(args, context);
  if (args.rows <= 16) return LaunchWarps<T, 2>(args, context);
  if (args.rows <= 32) return LaunchWarps<T, 4>(args, context);
  return LaunchWarps<T, 8>(args, context);
}

}  // namespace

cudaError_t LaunchFewRowsProjection(ElementType type, const ProjectionArgs& args,
                                    const LaunchContext& context) {
  return type == ElementType::kFloat16 ? LaunchHalf<__half>(args, context)
                                       : LaunchHalf<__nv_bfloat16>(args, context);
}

}  // namespace seq2seq::kernels
