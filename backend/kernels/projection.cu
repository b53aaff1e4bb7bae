#include "backend/kernels/projection.h"

#include <type_traits>

#include "backend/kernels/operand_layout.h"
#include "backend/kernels/projection_kernels.h"
#include "backend/kernels/projection_parts.cuh"
#include "backend/kernels/tensor_map.h"

namespace seq2seq::kernels {
namespace {

constexpr int kChunkFloats = kTileOutputs * kChunkInputs;
// LaunchFewRowsProjection reads all of its input once in 16 or 32 outputs, the kernels for more
// rows once in 64 or 128. Measured on an H200, these are the rows from which those are faster.
constexpr int kManyTiles = 200;
constexpr int kVocabularyTiles = 1000;

int WideRows(int tiles) { return tiles >= kVocabularyTiles ? 17 : tiles >= kManyTiles ? 33 : 65; }
int WarpgroupRows(int tiles) { return tiles >= kManyTiles ? 17 : 33; }

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
    const int output =
        args.paired ? row / 8 * 16 + args.half * 8 + row % 8 : args.first_output + row;
    const int64_t chunk = int64_t{output / kTileOutputs} * chunks + k / kChunkInputs;
    const int r = output % kTileOutputs;
    const int kk = k % kChunkInputs;
    if (args.packed_type == ElementType::kFloat32) {
      static_cast<float*>(args.packed)[chunk * kChunkFloats + r * kChunkInputs + kk] = value;
      continue;
    }
    const int64_t place =
        chunk * kChunkFloats + r * kChunkInputs + PlaceInChunk<sizeof(__half)>(r, kk);
    if (args.packed_type == ElementType::kFloat16) {
      static_cast<__half*>(args.packed)[place] = FromFloat<__half>(value);
    } else {
      static_cast<__nv_bfloat16*>(args.packed)[place] = FromFloat<__nv_bfloat16>(value);
    }
  }
}

// Projections in float, for parity: lane g * 4 + t sums outputs g, g + 8 of rows 2 t, 2 t + 1.
template <ProjectionOutput kOutput>
__global__ void __launch_bounds__(256) FloatKernel(const __grid_constant__ ProjectionArgs args) {
  __shared__ float2 sums[8 * 64];
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
      const float first = row < args.rows ? LoadFresh(input + k) : 0.0F;
      const float second = row + 1 < args.rows ? LoadFresh(input + kChunkInputs + k) : 0.0F;
      sum[0] += low[k] * first;
      sum[1] += low[k] * second;
      sum[2] += high[k] * first;
      sum[3] += high[k] * second;
    }
  }
  Factors<1, 8> row_factors(args, first_row);
  row_factors.Fetch();
  row_factors.Reduce();
  row_factors.Store(factors);
  sums[warp * 64 + lane] = make_float2(sum[0], sum[2]);
  sums[warp * 64 + 32 + lane] = make_float2(sum[1], sum[3]);
  __syncthreads();
  if (threadIdx.x >= 64) return;
  const int p = threadIdx.x;
  auto epilogue = MakeEpilogue<float, kOutput>(args, blockIdx.x, p, first_row);
  epilogue.Prepare();
  epilogue.Fetch();
  float low = 0.0F;
  float high = 0.0F;
  for (int w = 0; w < 8; ++w) {
    low += sums[w * 64 + p].x;
    high += sums[w * 64 + p].y;
  }
  epilogue.Store(low, high, factors[LocalRow(p)]);
}

}  // namespace

cudaError_t LaunchPack(const PackArgs& args, const LaunchContext& context) {
  return Launch(PackKernel, {dim3(1024), dim3(256)}, context, args, ChunkCount(args.columns));
}

cudaError_t LaunchProjection(ElementType type, const ProjectionArgs& args,
                             const LaunchContext& context) {
  if (type != ElementType::kFloat32) {
    const int tiles = TileCount(args.outputs);
    bool hopper = false;
    if (const cudaError_t error = IsHopper(&hopper); error != cudaSuccess) return error;
    if (hopper && args.rows >= WarpgroupRows(tiles)) {
      return LaunchWarpgroupProjection(type, args, context);
    }
    return args.rows >= WideRows(tiles) ? LaunchWideProjection(type, args, context)
                                        : LaunchFewRowsProjection(type, args, context);
  }
  const LaunchShape shape{dim3(TileCount(args.outputs), (args.rows + 7) / 8), dim3(256)};
  return WithOutput(args.output, [&](auto output) {
    return Launch(FloatKernel<decltype(output)::value>, shape, context, args);
  });
}

}  // namespace seq2seq::kernels
