#include "backend/kernels/encoder_attention.h"

#include <algorithm>

#include "backend/kernels/device_math.cuh"
#include "backend/kernels/encoder_attention_kernels.h"
#include "backend/kernels/tensor_map.h"

namespace seq2seq::kernels {
namespace {

constexpr int kThreads = 2 * kQueryTile;  // a warp has 16 queries
constexpr int kKeyTile = 64;
constexpr float kLowest = -1e30F;
constexpr int kMaxHeadDim = 256;
constexpr int kMaxDistance = 4096;

// Rows of a shared tile are 16 bytes longer than their data, which keeps reads free of bank
// conflicts.
template <int kHeadDim>
constexpr int kRowStride = kHeadDim + 8;

// Four 8 x 8 tiles, transposed: registers 2 i and 2 i + 1 are the B operand of column tile i.
__device__ __forceinline__ void LoadTransposed(uint32_t (&regs)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(regs[0]), "=r"(regs[1]), "=r"(regs[2]), "=r"(regs[3])
               : "r"(SharedAddress(row)));
}

// One block: one head's kQueryTile queries of one source; a warp has 16 of them. Flash attention
// (Dao et al. 2022): keys come in tiles, the softmax is kept up to date.
template <typename T, int kHeadDim>
class TileAttention {
 public:
  static constexpr int kStride = kRowStride<kHeadDim>;
  static constexpr int kTileElements = kKeyTile * kStride;
  static constexpr int kKeyTiles = kKeyTile / 8;
  static constexpr int kDimTiles = kHeadDim / 8;

  __device__ TileAttention(const EncoderAttentionArgs& args, const QueryTile& tile, T* shared,
                           const float* bias)
      : args_(args),
        tile_(tile),
        shared_(shared),
        bias_(bias),
        inner_(args.heads * args.head_dim),
        source_(static_cast<const T*>(args.query_key_value) +
                int64_t{tile.first_token} * 3 * inner_ + blockIdx.x * kHeadDim),
        query_(tile.first_query + static_cast<int>(threadIdx.x) / 32 * 16 +
               static_cast<int>(threadIdx.x) % 32 / 4) {}

  __device__ void Run() {
    LoadQueries();
    const int tiles = (tile_.length + kKeyTile - 1) / kKeyTile;
    FetchKeys(0);
    CommitSharedCopies();
    for (int i = 0; i < tiles; ++i) {
      if (i + 1 < tiles) FetchKeys(i + 1);
      CommitSharedCopies();
      WaitForSharedCopies<1>();
      __syncthreads();
      AddKeys(i);
      __syncthreads();
    }
    Store();
  }

 private:
  __device__ const T* Keys(int tile) const { return shared_ + tile % 2 * 2 * kTileElements; }

  __device__ void LoadQueries() {
    const int t = threadIdx.x % 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = query_ + 8 * half;
      const T* row = source_ + int64_t{query} * 3 * inner_;
#pragma unroll
      for (int k = 0; k < kHeadDim / 16; ++k) {
        const bool there = query < tile_.length;
        const uint32_t* words = reinterpret_cast<const uint32_t*>(row + k * 16);
        queries_[k][half] = there ? words[t] : 0;
        queries_[k][half + 2] = there ? words[t + 4] : 0;
      }
    }
  }

  // Starts to copy a tile of keys and values; rows past the end are zeros.
  __device__ void FetchKeys(int tile) {
    T* keys = shared_ + tile % 2 * 2 * kTileElements;
    constexpr int kRowVectors = kHeadDim / 8;
    for (int i = threadIdx.x; i < 2 * kKeyTile * kRowVectors; i += kThreads) {
      const int is_value = i / (kKeyTile * kRowVectors);
      const int row = i / kRowVectors % kKeyTile;
      const int vector = i % kRowVectors;
      const int key = tile * kKeyTile + row;
      T* destination = keys + is_value * kTileElements + row * kStride + vector * 8;
      if (key < tile_.length) {
        CopyToSharedAsync(destination, source_ + int64_t{key} * 3 * inner_ +
                                           (1 + is_value) * inner_ + vector * 8);
      } else {
        *reinterpret_cast<uint4*>(destination) = uint4{};
      }
    }
  }

  __device__ void AddKeys(int tile) {
    const int lane = threadIdx.x % 32;
    const int group = lane / 4;
    const int t = lane % 4;
    const T* keys = Keys(tile);
    float scores[kKeyTiles][4] = {};
#pragma unroll
    for (int n = 0; n < kKeyTiles; ++n) {
      const uint32_t* row = reinterpret_cast<const uint32_t*>(keys + (n * 8 + group) * kStride);
#pragma unroll
      for (int k = 0; k < kHeadDim / 16; ++k) {
        MultiplyTile<T>(scores[n], queries_[k][0], queries_[k][1], queries_[k][2], queries_[k][3],
                        row[k * 8 + t], row[k * 8 + t + 4]);
      }
    }
    Softmax(tile, scores);
    const T* values = keys + kTileElements;
#pragma unroll
    for (int k = 0; k < kKeyTile / 16; ++k) {
      const uint32_t a0 = PackPair<T>(scores[2 * k][0], scores[2 * k][1]);
      const uint32_t a1 = PackPair<T>(scores[2 * k][2], scores[2 * k][3]);
      const uint32_t a2 = PackPair<T>(scores[2 * k + 1][0], scores[2 * k + 1][1]);
      const uint32_t a3 = PackPair<T>(scores[2 * k + 1][2], scores[2 * k + 1][3]);
#pragma unroll
      for (int n = 0; n < kDimTiles; n += 2) {
        uint32_t b[4];
        LoadTransposed(b, values + (k * 16 + lane % 16) * kStride + (n + lane / 16) * 8);
        MultiplyTile<T>(output_[n], a0, a1, a2, a3, b[0], b[1]);
        MultiplyTile<T>(output_[n + 1], a0, a1, a2, a3, b[2], b[3]);
      }
    }
  }

  // Turns scores into weights relative to the running maximum, and rescales what is there.
  __device__ void Softmax(int tile, float (&scores)[kKeyTiles][4]) {
    const int t = threadIdx.x % 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float peak = max_[half];
#pragma unroll
      for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          const int key = tile * kKeyTile + n * 8 + 2 * t + c;
          float& score = scores[n][2 * half + c];
          score *= args_.scale;
          if (bias_ != nullptr) {
            const int distance = key - query_ - 8 * half;
            score += bias_[min(max(distance, -args_.max_distance), args_.max_distance) +
                           args_.max_distance];
          }
          if (key >= tile_.length) score = -INFINITY;
          peak = fmaxf(peak, score);
        }
      }
      peak = fmaxf(peak, __shfl_xor_sync(kFullWarp, peak, 1));
      peak = fmaxf(peak, __shfl_xor_sync(kFullWarp, peak, 2));
      const float factor = __expf(max_[half] - peak);
      max_[half] = peak;
      float sum = 0.0F;
#pragma unroll
      for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          float& score = scores[n][2 * half + c];
          score = __expf(score - peak);
          sum += score;
        }
      }
      sum_[half] = sum_[half] * factor + sum;
#pragma unroll
      for (int n = 0; n < kDimTiles; ++n) {
        output_[n][2 * half] *= factor;
        output_[n][2 * half + 1] *= factor;
      }
    }
  }

  __device__ void Store() {
    const int t = threadIdx.x % 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float sum = sum_[half];
      sum += __shfl_xor_sync(kFullWarp, sum, 1);
      sum += __shfl_xor_sync(kFullWarp, sum, 2);
      const int query = query_ + 8 * half;
      if (query >= tile_.length) continue;
      T* row = static_cast<T*>(args_.output) + int64_t{tile_.first_token + query} * inner_ +
               blockIdx.x * kHeadDim;
#pragma unroll
      for (int n = 0; n < kDimTiles; ++n) {
        reinterpret_cast<uint32_t*>(row + n * 8)[t] =
            PackPair<T>(output_[n][2 * half] / sum, output_[n][2 * half + 1] / sum);
      }
    }
  }

  const EncoderAttentionArgs& args_;
  const QueryTile& tile_;
  T* shared_;
  const float* bias_;
  int inner_;
  const T* source_;
  int query_;  // of this thread's first row; the second is 8 below
  uint32_t queries_[kHeadDim / 16][4];
  float output_[kDimTiles][4] = {};
  float max_[2] = {kLowest, kLowest};
  float sum_[2] = {};
};

template <typename T, int kHeadDim>
__global__ void __launch_bounds__(kThreads)
    TileAttentionKernel(const __grid_constant__ EncoderAttentionArgs args) {
  extern __shared__ uint4 shared[];
  const QueryTile tile = args.tiles[blockIdx.y];
  if (tile.length == 0) return;
  T* tiles = reinterpret_cast<T*>(shared);
  float* bias = reinterpret_cast<float*>(tiles + 4 * TileAttention<T, kHeadDim>::kTileElements);
  const int distances = 2 * args.max_distance + 1;
  if (args.bias != nullptr) {
    for (int i = threadIdx.x; i < distances; i += kThreads) {
      bias[i] = args.bias[int64_t{blockIdx.x} * distances + i];
    }
  }
  TileAttention<T, kHeadDim>(args, tile, tiles, args.bias == nullptr ? nullptr : bias).Run();
}

// A warp has one query at a time: lanes have keys for the scores, then dimensions for the sum.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    PlainAttentionKernel(const __grid_constant__ EncoderAttentionArgs args) {
  const QueryTile tile = args.tiles[blockIdx.y];
  const int head = blockIdx.x;
  const int dims = args.head_dim;
  const int lane = threadIdx.x % 32;
  const int inner = args.heads * dims;
  const T* source = static_cast<const T*>(args.query_key_value) +
                    int64_t{tile.first_token} * 3 * inner + head * dims;
  const int last = min(tile.first_query + kQueryTile, tile.length);
  for (int q = tile.first_query + static_cast<int>(threadIdx.x) / 32; q < last;
       q += kThreads / 32) {
    const T* query = source + int64_t{q} * 3 * inner;
    float max = kLowest;
    float sum = 0.0F;
    float output[kMaxHeadDim / 32] = {};
    for (int first = 0; first < tile.length; first += 32) {
      const int key = first + lane;
      float score = -INFINITY;
      if (key < tile.length) {
        const T* row = source + int64_t{key} * 3 * inner + inner;
        score = 0.0F;
        for (int d = 0; d < dims; ++d) score += ToFloat(query[d]) * ToFloat(row[d]);
        score *= args.scale;
        if (args.bias != nullptr) {
          const int distance = min(::max(key - q, -args.max_distance), args.max_distance);
          score +=
              args.bias[int64_t{head} * (2 * args.max_distance + 1) + distance + args.max_distance];
        }
      }
      const float new_max = fmaxf(max, WarpMax(score));
      const float factor = expf(max - new_max);
      const float weight = expf(score - new_max);
      max = new_max;
      sum = sum * factor + WarpSum(weight);
#pragma unroll
      for (int i = 0; i < kMaxHeadDim / 32; ++i) output[i] *= factor;
      for (int k = 0; k < min(32, tile.length - first); ++k) {
        const float key_weight = __shfl_sync(kFullWarp, weight, k);
        const T* row = source + int64_t{first + k} * 3 * inner + 2 * inner;
#pragma unroll
        for (int i = 0; i < kMaxHeadDim / 32; ++i) {
          const int d = i * 32 + lane;
          if (d < dims) output[i] += key_weight * ToFloat(row[d]);
        }
      }
    }
    T* row = static_cast<T*>(args.output) + int64_t{tile.first_token + q} * inner + head * dims;
#pragma unroll
    for (int i = 0; i < kMaxHeadDim / 32; ++i) {
      const int d = i * 32 + lane;
      if (d < dims) row[d] = FromFloat<T>(output[i] / sum);
    }
  }
}

// Of a block, for either half type: the tiles, then the bias.
template <int kHeadDim>
size_t SharedBytes(int32_t max_distance) {
  return 4 * TileAttention<__half, kHeadDim>::kTileElements * sizeof(__half) +
         (2 * size_t(max_distance) + 1) * sizeof(float);
}

template <typename T, int kHeadDim>
cudaError_t LaunchTile(const EncoderAttentionArgs& args, const LaunchContext& context) {
  LaunchShape shape{dim3(args.heads, args.tile_count), dim3(kThreads)};
  shape.shared_bytes = SharedBytes<kHeadDim>(args.max_distance);
  return Launch(TileAttentionKernel<T, kHeadDim>, shape, context, args);
}

template <typename T>
cudaError_t LaunchPlain(const EncoderAttentionArgs& args, const LaunchContext& context) {
  return Launch(PlainAttentionKernel<T>, {dim3(args.heads, args.tile_count), dim3(kThreads)},
                context, args);
}

template <typename T>
cudaError_t LaunchHalf(const EncoderAttentionArgs& args, const LaunchContext& context) {
  size_t limit = 0;
  const cudaError_t error = BlockSharedLimit(context, &limit);
  if (error != cudaSuccess) return error;
  if (!TileAttentionTakes(args.head_dim, args.max_distance, limit)) {
    return LaunchPlain<T>(args, context);
  }
  return args.head_dim == 64 ? LaunchTile<T, 64>(args, context) : LaunchTile<T, 128>(args, context);
}

template <typename T>
cudaError_t AllowTiles() {
  size_t allowed = 0;
  const cudaError_t error = AllowSharedMemory(TileAttentionKernel<T, 64>, {}, &allowed);
  return error != cudaSuccess ? error
                              : AllowSharedMemory(TileAttentionKernel<T, 128>, {}, &allowed);
}

}  // namespace

bool TileAttentionTakes(int32_t head_dim, int32_t max_distance, size_t shared_limit) {
  return (head_dim == 64 && SharedBytes<64>(max_distance) <= shared_limit) ||
         (head_dim == 128 && SharedBytes<128>(max_distance) <= shared_limit);
}

cudaError_t LaunchEncoderAttention(ElementType type, const EncoderAttentionArgs& args,
                                   const LaunchContext& context) {
  if (args.head_dim * ElementBytes(type) % 16 != 0 || args.head_dim > kMaxHeadDim ||
      args.max_distance > kMaxDistance) {
    return cudaErrorInvalidValue;
  }
  bool hopper = false;
  if (const cudaError_t error = IsHopper(&hopper); error != cudaSuccess) return error;
  if (hopper && HopperAttentionTakes(type, args)) return LaunchHopperAttention(type, args, context);
  switch (type) {
    case ElementType::kFloat32:
      return LaunchPlain<float>(args, context);
    case ElementType::kFloat16:
      return LaunchHalf<__half>(args, context);
    case ElementType::kBfloat16:
      return LaunchHalf<__nv_bfloat16>(args, context);
  }
  return cudaErrorInvalidValue;
}

cudaError_t PrepareEncoderAttention() {
  bool hopper = false;
  if (const cudaError_t error = IsHopper(&hopper); error != cudaSuccess) return error;
  for (const cudaError_t error : {hopper ? PrepareHopperAttention() : cudaSuccess,
                                  AllowTiles<__half>(), AllowTiles<__nv_bfloat16>()}) {
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace seq2seq::kernels
