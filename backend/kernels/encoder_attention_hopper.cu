#include <algorithm>

#include "backend/kernels/device_math.cuh"
#include "backend/kernels/encoder_attention.h"
#include "backend/kernels/encoder_attention_kernels.h"
#include "backend/kernels/hopper.cuh"
#include "backend/kernels/tensor_map.h"
#include "backend/kernels/wgmma.cuh"

namespace seq2seq::kernels {
namespace {

constexpr int kHeadDim = 64;  // as wide as the swizzle of the copies: 128 bytes
// A warpgroup has 64 queries.
constexpr int kGroups = kQueryTile / 64;
constexpr int kThreads = kGroups * 128;
constexpr int kKeyTile = 64;
constexpr int kStages = 4;
constexpr int kTileBytes = 64 * kHeadDim * 2;
constexpr int kAlignment = 1024;
constexpr float kLog2E = 1.4426950408889634F;
constexpr float kLowest = -1e30F;

// The bias of one head by distance, with clamped values beyond it as far as a tile's keys and
// queries can lie: reads need no clamp. In two copies, the second without its first value, so that
// two neighbours are always 8-byte aligned in one of them.
struct BiasTable {
  float* values;
  int32_t distances;  // of the bias, rounded up to an even number
  int32_t first;      // index of distance 0
  int32_t stride;     // between the copies

  static __host__ __device__ int32_t Distances(int32_t max_distance) {
    return (max_distance + 1) / 2 * 2;
  }
  static __host__ __device__ int32_t First(int32_t max_distance) {
    return Distances(max_distance) + kKeyTile + kQueryTile;
  }
  // 16 banks apart, for reads from both at once.
  static __host__ __device__ int32_t Stride(int32_t max_distance) {
    return (2 * First(max_distance) + 1) / 32 * 32 + 48;
  }

  __device__ BiasTable(float* memory, int32_t max_distance)
      : values(memory),
        distances(Distances(max_distance)),
        first(First(max_distance)),
        stride(Stride(max_distance)) {}

  // In powers of 2. A null `bias` is zeros.
  __device__ void Fill(const float* bias, int32_t max_distance) const {
    constexpr int kAtOnce = 8;  // reads in flight
    for (int i = threadIdx.x; i < 2 * stride; i += kAtOnce * kThreads) {
      float read[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        const int place = i + k * kThreads;
        const int copy = place >= stride ? 1 : 0;
        const int distance = place - copy * stride + copy - first;
        const int at = min(max(distance, -max_distance), max_distance) + max_distance;
        read[k] = bias == nullptr ? 0.0F : bias[at] * kLog2E;
      }
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        if (i + k * kThreads < 2 * stride) values[i + k * kThreads] = read[k];
      }
    }
  }

  // Where a thread finds the bias of the first key of a tile that starts `distance` after the
  // block's first query, for the `row`th query after that. Even entries from there are aligned.
  __device__ const float* At(int distance, int row) const {
    const int clamped = min(max(distance, -(distances + kKeyTile)), distances + kQueryTile);
    const int odd = row % 2;
    return values + odd * stride + first + clamped - row - odd;
  }
};

// One warpgroup's queries. Flash attention (Dao et al. 2022; asynchronous products as in Shah et
// al. 2024): keys come in tiles, the softmax is kept up to date, in powers of 2.
template <typename T>
class QueryGroup {
 public:
  __device__ QueryGroup(const EncoderAttentionArgs& args, const QueryTile& tile,
                        const BiasTable& bias, const char* queries)
      : args_(args),
        tile_(tile),
        bias_(bias),
        queries_(SwizzledTile(queries)),
        row_(static_cast<int>(threadIdx.x) / 32 * 16 + static_cast<int>(threadIdx.x) % 32 / 4),
        scale_(args.scale * kLog2E) {}

  // Between these two the products that were started run, and nothing else may touch their sums.
  __device__ void Begin() {
    PinRegisters(scores_);
    PinRegisters(output_);
    BeginProducts();
  }
  __device__ void Wait() {
    WaitForProducts<0>();
    PinRegisters(scores_);
    PinRegisters(output_);
  }

  // Starts scores = queries x keys.
  __device__ void StartScores(const char* keys) {
    const uint64_t b = SwizzledTile(keys);
#pragma unroll
    for (int k = 0; k < kHeadDim / 16; ++k) {
      MultiplyAsync<T>(scores_, queries_ + 2 * k, b + 2 * k, k > 0);
    }
  }

  // Starts output += weights x values.
  __device__ void StartOutput(const char* values) {
    const uint64_t b = SwizzledTile(values);
#pragma unroll
    for (int k = 0; k < kKeyTile / 16; ++k) {
      MultiplyRowsAsync<T>(output_, weights_[k], b + k * (16 * kHeadDim * 2 >> 4));
    }
  }

  // Turns scores into weights relative to the running maximum, and rescales what is there.
  __device__ void Softmax(int key_tile) {
    const int first_key = key_tile * kKeyTile;
    AddBias(first_key);
    if (first_key + kKeyTile > tile_.length) Mask(tile_.length - first_key);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float peak = max_[half];
#pragma unroll
      for (int n = 0; n < kKeyTile / 8; ++n) {
        peak = fmaxf(peak, fmaxf(scores_[n * 4 + 2 * half], scores_[n * 4 + 2 * half + 1]));
      }
      peak = fmaxf(peak, __shfl_xor_sync(kFullWarp, peak, 1));
      peak = fmaxf(peak, __shfl_xor_sync(kFullWarp, peak, 2));
      const float factor = FastExp2(max_[half] - peak);
      max_[half] = peak;
      float sum = 0.0F;
#pragma unroll
      for (int n = 0; n < kKeyTile / 8; ++n) {
        const float low = FastExp2(scores_[n * 4 + 2 * half] - peak);
        const float high = FastExp2(scores_[n * 4 + 2 * half + 1] - peak);
        sum += low + high;
        weights_[n / 2][n % 2 * 2 + half] = PackPair<T>(low, high);
      }
      sum_[half] = sum_[half] * factor + sum;
#pragma unroll
      for (int n = 0; n < kHeadDim / 8; ++n) {
        output_[n * 4 + 2 * half] *= factor;
        output_[n * 4 + 2 * half + 1] *= factor;
      }
    }
  }

  __device__ void Store() const {
    const int t = threadIdx.x % 4;
    const int inner = args_.heads * kHeadDim;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float sum = sum_[half];
      sum += __shfl_xor_sync(kFullWarp, sum, 1);
      sum += __shfl_xor_sync(kFullWarp, sum, 2);
      const float factor = 1.0F / sum;
      const int query = tile_.first_query + row_ + 8 * half;
      T* row = static_cast<T*>(args_.output) + int64_t{tile_.first_token + query} * inner +
               blockIdx.x * kHeadDim;
#pragma unroll
      for (int n = 0; n < kHeadDim / 8; n += 4) {
        uint32_t pairs[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float* values = &output_[(n + i) * 4 + 2 * half];
          pairs[i] = PackPair<T>(values[0] * factor, values[1] * factor);
        }
        const uint4 bits = GatherColumns(pairs[0], pairs[1], pairs[2], pairs[3]);
        if (query < tile_.length) *reinterpret_cast<uint4*>(row + (n + t) * 8) = bits;
      }
    }
  }

 private:
  __device__ void AddBias(int first_key) {
    const float* table = bias_.At(first_key - tile_.first_query, row_) + 2 * (threadIdx.x % 4);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int n = 0; n < kKeyTile / 8; ++n) {
        const float2 bias = *reinterpret_cast<const float2*>(table + n * 8 - half * 8);
        float* score = &scores_[n * 4 + 2 * half];
        score[0] = score[0] * scale_ + bias.x;
        score[1] = score[1] * scale_ + bias.y;
      }
    }
  }

  __device__ void Mask(int keys) {
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      const int key = i / 4 * 8 + 2 * static_cast<int>(threadIdx.x % 4) + i % 2;
      if (key >= keys) scores_[i] = -INFINITY;
    }
  }

  const EncoderAttentionArgs& args_;
  const QueryTile& tile_;
  const BiasTable& bias_;
  uint64_t queries_;
  int row_;  // of this thread's first query in the block; the second is 8 below
  float scale_;
  float scores_[32];
  uint32_t weights_[kKeyTile / 16][4];
  float output_[32] = {};
  float max_[2] = {kLowest, kLowest};
  float sum_[2] = {};
};

constexpr size_t kTilesBytes = (kGroups + 2 * kStages) * kTileBytes;
constexpr size_t kBarriersBytes = 128;

// One block: one head's kQueryTile queries of one source.
template <typename T>
__global__ void __launch_bounds__(kThreads, 2)
    HopperAttentionKernel(const __grid_constant__ CUtensorMap map,
                          const __grid_constant__ EncoderAttentionArgs args) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ char shared[];
  char* queries = shared + (kAlignment - SharedAddress(shared) % kAlignment) % kAlignment;
  char* ring = queries + kGroups * kTileBytes;
  auto* full = reinterpret_cast<uint64_t*>(ring + 2 * kStages * kTileBytes);
  uint64_t* empty = full + kStages;
  uint64_t* queries_there = empty + kStages;
  const BiasTable bias(reinterpret_cast<float*>(reinterpret_cast<char*>(full) + kBarriersBytes),
                       args.max_distance);
  WaitForEarlierKernels();
  const QueryTile tile = args.tiles[blockIdx.y];
  if (tile.length == 0) return;
  const int key_tiles = (tile.length + kKeyTile - 1) / kKeyTile;
  const int groups = min(kGroups, (tile.length - tile.first_query + 63) / 64);
  const int inner = args.heads * kHeadDim;
  const int column = static_cast<int>(blockIdx.x) * kHeadDim;
  const auto fetch = [&](int i) {
    uint64_t* barrier = full + i % kStages;
    char* keys = ring + i % kStages * 2 * kTileBytes;
    const int token = tile.first_token + i * kKeyTile;
    ArriveExpecting(barrier, 2 * kTileBytes);
    CopyBox(keys, map, barrier, inner + column, token);
    CopyBox(keys + kTileBytes, map, barrier, 2 * inner + column, token);
  };
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      InitBarrier(full + i, 1);
      InitBarrier(empty + i, groups);
    }
    InitBarrier(queries_there, 1);
    FenceBarrierInit();
    ArriveExpecting(queries_there, groups * kTileBytes);
    for (int group = 0; group < groups; ++group) {
      CopyBox(queries + group * kTileBytes, map, queries_there, column,
              tile.first_token + tile.first_query + group * 64);
    }
    for (int i = 0; i < min(kStages, key_tiles); ++i) fetch(i);
  }
  bias.Fill(args.bias == nullptr ? nullptr
                                 : args.bias + int64_t{blockIdx.x} * (2 * args.max_distance + 1),
            args.max_distance);
  __syncthreads();
  const int group = static_cast<int>(threadIdx.x) / 128;
  if (group >= groups) return;
  QueryGroup<T> attention(args, tile, bias, queries + group * kTileBytes);
  const auto wait = [&](int i) { WaitForPhase(full + i % kStages, i / kStages % 2); };
  const auto keys = [&](int i) { return ring + i % kStages * 2 * kTileBytes; };
  WaitForPhase(queries_there, 0);
  wait(0);
  attention.Begin();
  attention.StartScores(keys(0));
  CommitProducts();
  const int last = key_tiles - 1;
  for (int i = 0; i < last; ++i) {
    attention.Wait();
    if (i > 0 && threadIdx.x % 128 == 0) Arrive(empty + (i - 1) % kStages);
    attention.Softmax(i);
    wait(i + 1);
    attention.Begin();
    attention.StartOutput(keys(i) + kTileBytes);
    attention.StartScores(keys(i + 1));
    CommitProducts();
    const int next = i - 1 + kStages;
    if (threadIdx.x == 0 && i > 0 && next < key_tiles) {
      WaitForPhase(empty + (i - 1) % kStages, (i - 1) / kStages % 2);
      fetch(next);
    }
    __syncwarp();
  }
  attention.Wait();
  attention.Softmax(last);
  attention.Begin();
  attention.StartOutput(keys(last) + kTileBytes);
  CommitProducts();
  attention.Wait();
  attention.Store();
#else
  __trap();  // not built for the device that it runs on
#endif
}

size_t SharedBytes(int32_t max_distance) {
  return kAlignment + kTilesBytes + kBarriersBytes +
         2 * BiasTable::Stride(max_distance) * sizeof(float);
}

}  // namespace

bool HopperAttentionTakes(ElementType type, const EncoderAttentionArgs& args) {
  return type != ElementType::kFloat32 && args.head_dim == kHeadDim;
}

cudaError_t LaunchHopperAttention(ElementType type, const EncoderAttentionArgs& args,
                                  const LaunchContext& context) {
  CUtensorMap map;
  const auto columns = static_cast<uint64_t>(3 * args.heads * args.head_dim);
  const cudaError_t error = EncodeTensorMap({.data = args.query_key_value,
                                             .rank = 2,
                                             .sizes = {columns, static_cast<uint64_t>(args.tokens)},
                                             .strides = {2 * columns},
                                             .box = {kHeadDim, kKeyTile},
                                             .swizzle = CU_TENSOR_MAP_SWIZZLE_128B},
                                            &map);
  if (error != cudaSuccess) return error;
  LaunchShape shape{dim3(args.heads, args.tile_count), dim3(kThreads)};
  shape.shared_bytes = SharedBytes(args.max_distance);
  const auto kernel = type == ElementType::kFloat16 ? HopperAttentionKernel<__half>
                                                    : HopperAttentionKernel<__nv_bfloat16>;
  return Launch(kernel, shape, context, map, args);
}

cudaError_t PrepareHopperAttention() {
  size_t allowed = 0;
  for (const auto kernel : {HopperAttentionKernel<__half>, HopperAttentionKernel<__nv_bfloat16>}) {
    const cudaError_t error = AllowSharedMemory(kernel, {}, &allowed);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace seq2seq::kernels
