#include "backend/kernels/projection.h"

#include <algorithm>
#include <type_traits>

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
constexpr int kMaxRowTiles = 8;
// Chunks a warp keeps in shared memory before its input is ready.
constexpr int kMaxStagedChunks = 6;

template <int kRowTiles>
constexpr int kRegisterChunksFor = kRowTiles <= 2 ? 4 : 2;

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

// RMSNorm's factor and the output scale for the block's rows, one warp a row.
__device__ void ComputeFactors(const ProjectionArgs& args, int first_row, int row_count,
                               float* factors) {
  const RowFactor& factor = args.factor;
  const int lane = threadIdx.x % 32;
  for (int r = threadIdx.x / 32; r < row_count; r += blockDim.x / 32) {
    const int row = first_row + r;
    if (factor.sum_squares == nullptr || row >= args.rows) {
      if (lane == 0) factors[r] = factor.output_scale;
      continue;
    }
    float sum = 0.0F;
    for (int part = lane; part < factor.parts; part += 32) {
      sum += __ldcg(factor.sum_squares + int64_t{part} * args.row_capacity + row);
    }
    sum = WarpSum(sum);
    if (lane != 0) continue;
    const float scale = rsqrtf(sum * factor.inverse_width + factor.epsilon);
    factors[r] = scale / __ldcg(factor.scale_in + row) * factor.output_scale;
    if (blockIdx.x == 0) factor.scale_out[row] = scale;
  }
}

// Adds up the warps' sums, applies factor and bias, and hands the outputs on.
// sums: [warp][warp_stride] of [row tile][lane][4], laid out as mma accumulators.
template <typename T, int kRowTiles>
__device__ void ReduceAndStore(const ProjectionArgs& args, const float* sums, int warp_stride,
                               const float* factors, int first_row) {
  const int warps = blockDim.x / 32;
  for (int p = threadIdx.x; p < 64 * kRowTiles; p += blockDim.x) {
    const int row_tile = p / 64;
    const int column = p / 32 % 2;
    const int lane = p % 32;
    float low = 0.0F;
    float high = 0.0F;
    for (int w = 0; w < warps; ++w) {
      const float* sum = sums + w * warp_stride + (row_tile * 32 + lane) * 4 + column;
      low += sum[0];
      high += sum[2];
    }
    OutputPair pair;
    pair.tile = blockIdx.x;
    pair.group = lane / 4;
    const int local_row = row_tile * 8 + lane % 4 * 2 + column;
    pair.row = first_row + local_row;
    pair.row_exists = pair.row < args.rows;
    const float factor = factors[local_row];
    pair.value[0] = low * factor;
    pair.value[1] = high * factor;
    if (args.bias != nullptr) {
      const int output = pair.tile * kTileOutputs + pair.group;
      if (output < args.outputs) pair.value[0] += args.bias[output];
      if (output + 8 < args.outputs) pair.value[1] += args.bias[output + 8];
    }
    StoreOutputs<T>(args, pair);
  }
}

// The B operands of one chunk: lane g * 4 + t reads inputs 8 t .. 8 t + 7 of row g of each row tile.
template <int kRowTiles>
__device__ __forceinline__ void LoadInput(const ProjectionArgs& args, int chunk, int first_row,
                                          uint4 (&input)[kRowTiles]) {
  const int lane = threadIdx.x % 32;
  const uint4* vectors = static_cast<const uint4*>(args.input);
#pragma unroll
  for (int i = 0; i < kRowTiles; ++i) {
    const int row = first_row + i * 8 + lane / 4;
    input[i] = row < args.rows
                   ? __ldcg(vectors + (int64_t{chunk} * args.row_capacity + row) * 4 + lane % 4)
                   : uint4{};
  }
}

template <typename T, int kRowTiles>
__device__ __forceinline__ void MultiplyChunk(const uint4& low, const uint4& high,
                                              const uint4 (&input)[kRowTiles],
                                              float (&sums)[kRowTiles][4]) {
#pragma unroll
  for (int i = 0; i < kRowTiles; ++i) {
    MultiplyTile<T>(sums[i], low.x, high.x, low.y, high.y, input[i].x, input[i].y);
    MultiplyTile<T>(sums[i], low.z, high.z, low.w, high.w, input[i].z, input[i].w);
  }
}

// Warp w takes chunks w, w + warps, ...: the first RegisterChunks in registers, the next `staged` in
// shared memory, both before the input is ready, and the rest after.
template <typename T, int kRowTiles>
__global__ void __launch_bounds__(kMaxWarps * 32)
    ProjectionKernel(const __grid_constant__ ProjectionArgs args, int staged, int warp_vectors) {
  constexpr int kRegisterChunks = kRegisterChunksFor<kRowTiles>;
  extern __shared__ uint4 shared[];
  __shared__ float factors[kRowTiles * 8];
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int warps = blockDim.x / 32;
  const int chunks = ChunkCount(args.inputs);
  const int first_row = blockIdx.y * kRowTiles * 8;
  const uint4* weights =
      static_cast<const uint4*>(args.weights) + int64_t{blockIdx.x} * chunks * kChunkVectors + lane;
  uint4* own = shared + warp * warp_vectors;

  AllowNextKernel();
  uint4 low[kRegisterChunks];
  uint4 high[kRegisterChunks];
#pragma unroll
  for (int i = 0; i < kRegisterChunks; ++i) {
    const int chunk = warp + i * warps;
    const uint4* vectors = weights + int64_t{chunk} * kChunkVectors;
    low[i] = chunk < chunks ? LoadStreaming(vectors) : uint4{};
    high[i] = chunk < chunks ? LoadStreaming(vectors + 32) : uint4{};
  }
  for (int i = 0; i < staged; ++i) {
    const int chunk = warp + (kRegisterChunks + i) * warps;
    if (chunk >= chunks) break;
    const uint4* vectors = weights + int64_t{chunk} * kChunkVectors;
    CopyToSharedAsync(own + i * kChunkVectors + lane, vectors);
    CopyToSharedAsync(own + i * kChunkVectors + 32 + lane, vectors + 32);
  }
  CommitSharedCopies();

  WaitForEarlierKernels();
  float sums[kRowTiles][4] = {};
  uint4 input[kRowTiles];
#pragma unroll
  for (int i = 0; i < kRegisterChunks; ++i) {
    const int chunk = warp + i * warps;
    if (chunk >= chunks) break;
    LoadInput<kRowTiles>(args, chunk, first_row, input);
    MultiplyChunk<T, kRowTiles>(low[i], high[i], input, sums);
  }
  ComputeFactors(args, first_row, kRowTiles * 8, factors);
  WaitForSharedCopies<0>();
#pragma unroll 2
  for (int i = 0; i < staged; ++i) {
    const int chunk = warp + (kRegisterChunks + i) * warps;
    if (chunk >= chunks) break;
    LoadInput<kRowTiles>(args, chunk, first_row, input);
    MultiplyChunk<T, kRowTiles>(own[i * kChunkVectors + lane], own[i * kChunkVectors + 32 + lane],
                                input, sums);
  }
#pragma unroll 4
  for (int chunk = warp + (kRegisterChunks + staged) * warps; chunk < chunks; chunk += warps) {
    const uint4* vectors = weights + int64_t{chunk} * kChunkVectors;
    const uint4 low_rest = LoadStreaming(vectors);
    const uint4 high_rest = LoadStreaming(vectors + 32);
    LoadInput<kRowTiles>(args, chunk, first_row, input);
    MultiplyChunk<T, kRowTiles>(low_rest, high_rest, input, sums);
  }
  __syncwarp();  // the sums take the place of weights that other lanes of this warp may still read
  float4* own_sums = reinterpret_cast<float4*>(own);
#pragma unroll
  for (int i = 0; i < kRowTiles; ++i) {
    own_sums[i * 32 + lane] = make_float4(sums[i][0], sums[i][1], sums[i][2], sums[i][3]);
  }
  __syncthreads();
  ReduceAndStore<T, kRowTiles>(args, reinterpret_cast<const float*>(shared), warp_vectors * 4,
                               factors, first_row);
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
  ComputeFactors(args, first_row, 8, factors);
  reinterpret_cast<float4*>(sums)[threadIdx.x] = make_float4(sum[0], sum[1], sum[2], sum[3]);
  __syncthreads();
  ReduceAndStore<float, 1>(args, sums, 32 * 4, factors, first_row);
}

template <typename T, int kRowTiles>
cudaError_t LaunchTyped(const ProjectionArgs& args, const LaunchContext& context) {
  const int chunks = ChunkCount(args.inputs);
  const int warps = chunks > 64 ? 16 : 8;
  const int chunks_per_warp = (chunks + warps - 1) / warps;
  const int staged =
      std::clamp(chunks_per_warp - kRegisterChunksFor<kRowTiles>, 0, kMaxStagedChunks);
  const int warp_vectors = std::max(staged * kChunkVectors, kRowTiles * 32);
  LaunchShape shape;
  shape.grid = dim3(TileCount(args.outputs), (args.rows + kRowTiles * 8 - 1) / (kRowTiles * 8));
  shape.block = dim3(warps * 32);
  shape.shared_bytes = size_t{16} * warp_vectors * warps;
  return Launch(ProjectionKernel<T, kRowTiles>, shape, context, args, staged, warp_vectors);
}

template <typename T>
cudaError_t LaunchHalf(const ProjectionArgs& args, const LaunchContext& context) {
  if (args.rows <= 8) return LaunchTyped<T, 1>(args, context);
  if (args.rows <= 16) return LaunchTyped<T, 2>(args, context);
  if (args.rows <= 32) return LaunchTyped<T, 4>(args, context);
  return LaunchTyped<T, kMaxRowTiles>(args, context);
}

template <typename T, int kRowTiles>
cudaError_t AllowSharedMemory() {
  constexpr int kBytes = 16 * kMaxWarps * std::max(kMaxStagedChunks * kChunkVectors, kRowTiles * 32);
  return cudaFuncSetAttribute(ProjectionKernel<T, kRowTiles>,
                              cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
}

template <typename T>
cudaError_t AllowSharedMemoryForAll() {
  for (const cudaError_t error : {AllowSharedMemory<T, 1>(), AllowSharedMemory<T, 2>(),
                                  AllowSharedMemory<T, 4>(), AllowSharedMemory<T, kMaxRowTiles>()}) {
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
