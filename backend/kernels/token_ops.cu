#include "backend/kernels/token_ops.h"

#include <limits>

#include "backend/kernels/device_math.cuh"
#include "backend/kernels/with_element_type.cuh"

namespace seq2seq::kernels {
namespace {

constexpr int kThreads = 256;
// Of a block of ScatterKeyValuesKernel, each with so many vectors: what tokens in a row have of a
// head are neighbours in the cache, and are written together.
constexpr int kScatterTokens = 16;
constexpr int kScatterVectors = kThreads / kScatterTokens;

template <typename T>
__global__ void EmbedTokensKernel(const T* embedding, const int32_t* ids, int32_t width,
                                  float* values) {
  const int64_t token = blockIdx.x;
  const T* row = embedding + int64_t{ids[token]} * width;
  for (int k = threadIdx.x; k < width; k += blockDim.x) values[token * width + k] = ToFloat(row[k]);
}

// A thread has one vector of results.
template <typename T>
__global__ void __launch_bounds__(kThreads) ActivateTokensKernel(ActivateTokensArgs args) {
  constexpr int V = kVector<T>;
  const auto vectors = static_cast<unsigned>(args.width / V);
  const unsigned i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= args.tokens * vectors) return;
  // Gates of the rows before are twice as far.
  const uint4* source =
      static_cast<const uint4*>(args.input) + i + (args.gated ? int64_t{i / vectors} * vectors : 0);
  float gate[V];
  Unpack<T>(LoadStreaming(source), gate);
  float up[V];
  if (args.gated) Unpack<T>(LoadStreaming(source + vectors), up);
  uint4 bits;
  T* results = reinterpret_cast<T*>(&bits);
#pragma unroll
  for (int k = 0; k < V; ++k) {
    const float activated =
        sizeof(T) == 2 ? ActivateFast(args.kind, gate[k]) : Activate(args.kind, gate[k]);
    results[k] = FromFloat<T>(args.gated ? activated * up[k] : activated);
  }
  static_cast<uint4*>(args.output)[i] = bits;
}

// A thread has one vector.
template <typename T>
__global__ void __launch_bounds__(kThreads) ScatterKeyValuesKernel(ScatterKeyValuesArgs args) {
  constexpr int V = kVector<T>;
  const KvLayout& layout = args.layout;
  const int head_vectors = layout.head_dim / V;
  const int vectors = args.layers * 2 * layout.heads * head_vectors;
  const int64_t token = int64_t{blockIdx.x} * kScatterTokens + threadIdx.x / kScatterVectors;
  const int vector = static_cast<int>(blockIdx.y * kScatterVectors + threadIdx.x % kScatterVectors);
  if (token >= args.tokens || vector >= vectors) return;
  const uint4 bits =
      LoadStreaming(static_cast<const uint4*>(args.key_values) + token * vectors + vector);
  const int32_t place = args.places[token];
  if (place < 0) return;
  T* block = static_cast<T*>(args.pool) + place / kBlockTokens * layout.BlockStride() +
             args.layer_offset + place % kBlockTokens * layout.head_dim;
  // Heads of values lie behind those of keys, and layers behind each other, as in the source.
  const int head = vector / head_vectors;
  *reinterpret_cast<uint4*>(block + head * layout.HeadStride() +
                            (vector - head * head_vectors) * V) = bits;
}

}  // namespace

cudaError_t LaunchEmbedTokens(ElementType type, const void* embedding, const int32_t* ids,
                              int32_t tokens, int32_t width, float* values,
                              const LaunchContext& context) {
  return WithElementType(type, [&](auto element) {
    using T = decltype(element);
    return Launch(EmbedTokensKernel<T>, {dim3(tokens), dim3(kThreads)}, context,
                  static_cast<const T*>(embedding), ids, width, values);
  });
}

cudaError_t LaunchActivateTokens(ElementType type, const ActivateTokensArgs& args,
                                 const LaunchContext& context) {
  if (args.width * ElementBytes(type) % 16 != 0 ||
      int64_t{args.tokens} * args.width > std::numeric_limits<int32_t>::max()) {
    return cudaErrorInvalidValue;
  }
  return WithElementType(type, [&](auto element) {
    const int64_t vectors = int64_t{args.tokens} * args.width / kVector<decltype(element)>;
    const auto blocks = static_cast<unsigned>((vectors + kThreads - 1) / kThreads);
    return Launch(ActivateTokensKernel<decltype(element)>, {dim3(blocks), dim3(kThreads)}, context,
                  args);
  });
}

cudaError_t LaunchScatterKeyValues(ElementType type, const ScatterKeyValuesArgs& args,
                                   const LaunchContext& context) {
  if (args.layout.head_dim * ElementBytes(type) % 16 != 0) return cudaErrorInvalidValue;
  return WithElementType(type, [&](auto element) {
    const int32_t vectors =
        args.layers * 2 * args.layout.heads * args.layout.head_dim / kVector<decltype(element)>;
    const dim3 grid((args.tokens + kScatterTokens - 1) / kScatterTokens,
                    (vectors + kScatterVectors - 1) / kScatterVectors);
    return Launch(ScatterKeyValuesKernel<decltype(element)>, {grid, dim3(kThreads)}, context, args);
  });
}

}  // namespace seq2seq::kernels
