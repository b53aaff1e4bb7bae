#include "backend/kernels/token_ops.h"

#include <algorithm>

#include "backend/kernels/device_math.cuh"

namespace seq2seq::kernels {
namespace {

constexpr int kThreads = 256;

template <typename T>
__global__ void EmbedTokensKernel(const T* embedding, const int32_t* ids, int32_t width,
                                  float* values) {
  const int64_t token = blockIdx.x;
  const T* row = embedding + int64_t{ids[token]} * width;
  for (int k = threadIdx.x; k < width; k += blockDim.x) values[token * width + k] = ToFloat(row[k]);
}

template <typename T>
__global__ void __launch_bounds__(kThreads) NormTokensKernel(NormTokensArgs args) {
  __shared__ float warp_sums[kThreads / 32];
  const float* values = args.values + int64_t{blockIdx.x} * args.width;
  float sum = 0.0F;
  for (int k = threadIdx.x; k < args.width; k += kThreads) sum += values[k] * values[k];
  sum = WarpSum(sum);
  if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32] = sum;
  __syncthreads();
  float total = 0.0F;
  for (const float part : warp_sums) total += part;
  const float scale = rsqrtf(total / static_cast<float>(args.width) + args.epsilon);
  T* output = static_cast<T*>(args.output) + int64_t{blockIdx.x} * args.width;
  for (int k = threadIdx.x; k < args.width; k += kThreads) {
    output[k] = FromFloat<T>(values[k] * scale * args.weight[k]);
  }
}

template <typename T>
__global__ void ActivateTokensKernel(ActivateTokensArgs args) {
  constexpr int V = kVector<T>;
  const int vectors = args.width / V;
  const int64_t total = int64_t{args.tokens} * vectors;
  const int input_vectors = args.gated ? 2 * vectors : vectors;
  const uint4* input = static_cast<const uint4*>(args.input);
  uint4* output = static_cast<uint4*>(args.output);
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < total;
       i += int64_t{gridDim.x} * blockDim.x) {
    const int64_t token = i / vectors;
    const int64_t vector = i % vectors;
    float gate[V];
    Unpack<T>(input[token * input_vectors + vector], gate);
    float up[V];
    if (args.gated) Unpack<T>(input[token * input_vectors + vectors + vector], up);
    uint4 bits;
    T* results = reinterpret_cast<T*>(&bits);
#pragma unroll
    for (int k = 0; k < V; ++k) {
      const float activated = Activate(args.kind, gate[k]);
      results[k] = FromFloat<T>(args.gated ? activated * up[k] : activated);
    }
    output[i] = bits;
  }
}

template <typename T>
__global__ void ScatterKeyValuesKernel(ScatterKeyValuesArgs args) {
  constexpr int V = kVector<T>;
  const KvLayout& layout = args.layout;
  const int inner_vectors = layout.heads * layout.head_dim / V;
  const int64_t token = blockIdx.x;
  const int32_t place = args.places[token];
  T* block = static_cast<T*>(args.pool) + place / layout.block_tokens * layout.BlockStride() +
             args.layer_offset;
  const int offset = place % layout.block_tokens;
  const uint4* source = static_cast<const uint4*>(args.key_values) + token * 2 * inner_vectors;
  for (int i = threadIdx.x; i < 2 * inner_vectors; i += blockDim.x) {
    const int index = i % inner_vectors * V;
    const int64_t destination = (i < inner_vectors ? 0 : layout.ValueOffset()) +
                                index / layout.head_dim * layout.HeadStride() +
                                offset * layout.head_dim + index % layout.head_dim;
    *reinterpret_cast<uint4*>(block + destination) = source[i];
  }
}

// Calls run(T{}) with the type that `type` names.
template <typename Run>
cudaError_t WithType(ElementType type, Run run) {
  switch (type) {
    case ElementType::kFloat32:
      return run(float{});
    case ElementType::kFloat16:
      return run(__half{});
    case ElementType::kBfloat16:
      return run(__nv_bfloat16{});
  }
  return cudaErrorInvalidValue;
}

}  // namespace

cudaError_t LaunchEmbedTokens(ElementType type, const void* embedding, const int32_t* ids,
                              int32_t tokens, int32_t width, float* values,
                              const LaunchContext& context) {
  return WithType(type, [&](auto element) {
    using T = decltype(element);
    return Launch(EmbedTokensKernel<T>, {dim3(tokens), dim3(kThreads)}, context,
                  static_cast<const T*>(embedding), ids, width, values);
  });
}

cudaError_t LaunchNormTokens(ElementType type, const NormTokensArgs& args,
                             const LaunchContext& context) {
  return WithType(type, [&](auto element) {
    return Launch(NormTokensKernel<decltype(element)>, {dim3(args.tokens), dim3(kThreads)}, context,
                  args);
  });
}

cudaError_t LaunchActivateTokens(ElementType type, const ActivateTokensArgs& args,
                                 const LaunchContext& context) {
  if (args.width * ElementBytes(type) % 16 != 0) return cudaErrorInvalidValue;
  return WithType(type, [&](auto element) {
    const int64_t vectors = int64_t{args.tokens} * args.width / kVector<decltype(element)>;
    const auto blocks =
        static_cast<unsigned>(std::min<int64_t>((vectors + kThreads - 1) / kThreads, 8192));
    return Launch(ActivateTokensKernel<decltype(element)>, {dim3(blocks), dim3(kThreads)}, context,
                  args);
  });
}

cudaError_t LaunchScatterKeyValues(ElementType type, const ScatterKeyValuesArgs& args,
                                   const LaunchContext& context) {
  if (args.layout.head_dim * ElementBytes(type) % 16 != 0) return cudaErrorInvalidValue;
  return WithType(type, [&](auto element) {
    return Launch(ScatterKeyValuesKernel<decltype(element)>, {dim3(args.tokens), dim3(kThreads)},
                  context, args);
  });
}

}  // namespace seq2seq::kernels
