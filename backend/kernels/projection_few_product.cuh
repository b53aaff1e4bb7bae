// A block's product of some output tiles with up to 64 rows. Device code only.
#ifndef SEQ2SEQ_BACKEND_KERNELS_PROJECTION_FEW_PRODUCT_CUH_
#define SEQ2SEQ_BACKEND_KERNELS_PROJECTION_FEW_PRODUCT_CUH_

#include "backend/kernels/device_math.cuh"
#include "backend/kernels/few_rows_shape.h"
#include "backend/kernels/projection.h"
#include "backend/kernels/projection_parts.cuh"

namespace seq2seq::kernels {

// Chunks of input in flight at a time: all of a warp's for few rows, so that memory is waited for
// once.
template <int kRowTiles>
constexpr int kInputChunks = kRowTiles == 1   ? 7
                             : kRowTiles == 2 ? 6
                             : kRowTiles == 4 ? 3
                                              : 2;

// kTiles output tiles from first_tile on, rows first_row .. row_end - 1. Warp w takes chunks w,
// w + warps, ... of all of the tiles; unit u of its weights is its chunk u / kTiles of tile
// u % kTiles. The first kRegisterUnits are taken to registers, the next `staged` to shared memory,
// both before the input is ready, and the rest after.
//
// Latency is all here: after the wait there is one round of reads, without a branch. Nor does
// a thread read what it does not need: all blocks read their inputs at once, and a line that each
// warp of each block asks for is served one request after the other.
template <typename T, int kRowTiles, int kTiles>
class FewRowsProduct {
 public:
  static constexpr int kTilePairs = 64 * kRowTiles;
  static constexpr int kPairs = kTilePairs * kTiles;

  // shared: warp_vectors of each warp.
  __device__ __forceinline__ FewRowsProduct(const ProjectionArgs& args, int first_tile,
                                            int first_row, int row_end, int staged,
                                            int warp_vectors, uint4* shared)
      : lane_(threadIdx.x % 32),
        warp_(threadIdx.x / 32),
        warps_(blockDim.x / 32),
        chunks_(ChunkCount(args.inputs)),
        own_chunks_((chunks_ - warp_ + warps_ - 1) / warps_),
        kept_(min(own_chunks_, (kRegisterUnits + staged) / kTiles)),
        warp_vectors_(warp_vectors),
        row_vectors_(args.row_capacity * 4),
        shared_(shared),
        own_(shared + warp_ * warp_vectors) {
    const int last_tile = TileCount(args.outputs) - 1;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      tile_weights_[tile] =
          static_cast<const uint4*>(args.weights) + OperandLane(lane_) +
          (int64_t{min(first_tile + tile, last_tile)} * chunks_ + warp_) * kChunkVectors;
    }
    // Rows beyond the last read the first one, together with it.
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
      const int own_row = first_row + i * 8 + lane_ / 4;
      const int row = own_row < row_end ? own_row : first_row;
      input_rows_[i] =
          static_cast<const uint4*>(args.input) + row * 4 + VectorPlace(row, lane_ % 4);
    }
  }

  // What can be read before the input is ready.
  __device__ __forceinline__ void FetchWeights() {
    const int weight_step = warps_ * kChunkVectors;
#pragma unroll
    for (int u = 0; u < kRegisterUnits; ++u) {
      const uint4* vectors = tile_weights_[u % kTiles] + u / kTiles * weight_step;
      const bool there = u / kTiles < own_chunks_;
      low_[u] = there ? LoadStreaming(vectors) : uint4{};
      high_[u] = there ? LoadStreaming(vectors + 32) : uint4{};
    }
#pragma unroll 2
    for (int i = kRegisterUnits / kTiles; i < kept_; ++i) {
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        const uint4* vectors = tile_weights_[tile] + i * weight_step;
        uint4* place = own_ + (i * kTiles + tile - kRegisterUnits) * kChunkVectors + lane_;
        CopyToSharedAsync(place, vectors);
        CopyToSharedAsync(place + 32, vectors + 32);
      }
    }
    CommitSharedCopies();
  }

  // After WaitForEarlierKernels().
  __device__ __forceinline__ void FetchInput() {
#pragma unroll
    for (int i = 0; i < kInputs; ++i) LoadInput(i, input_[i]);
  }

  // Leaves the warp's sums in its part of shared memory, for PairSum() after a barrier.
  __device__ __forceinline__ void Multiply() {
    Sums<T, kRowTiles> sums[kTiles];
#pragma unroll
    for (int u = 0; u < kRegisterUnits; ++u) {
      sums[u % kTiles].Add(low_[u], high_[u], input_[u / kTiles]);
    }
    WaitForSharedCopies<0>();
#pragma unroll
    for (int i = kRegisterUnits / kTiles; i < kInputs; ++i) {
      if (i < kept_) AddStaged(i, input_[i], sums);
    }
    constexpr int kMoreInputs = kInputs < 3 ? kInputs : 3;
#pragma unroll 1
    for (int first = kInputs; first < kept_; first += kMoreInputs) {
#pragma unroll
      for (int i = 0; i < kMoreInputs; ++i) LoadInput(first + i, input_[i]);
#pragma unroll
      for (int i = 0; i < kMoreInputs; ++i) {
        if (first + i < kept_) AddStaged(first + i, input_[i], sums);
      }
    }
#pragma unroll 2
    for (int i = kept_; i < own_chunks_; ++i) {
      LoadInput(i, input_[0]);
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        const uint4* vectors = tile_weights_[tile] + i * warps_ * kChunkVectors;
        sums[tile].Add(LoadStreaming(vectors), LoadStreaming(vectors + 32), input_[0]);
      }
    }
    __syncwarp();  // the sums take the place of weights that other lanes may still read
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      sums[tile].Store(reinterpret_cast<float4*>(own_) + tile * kRowTiles * 32);
    }
  }

  // The two sums of pair 0 .. kPairs - 1, see MakeEpilogue().
  __device__ __forceinline__ float2 PairSum(int pair) const {
    const float* pair_sums = reinterpret_cast<const float*>(shared_) + SumOffset(pair);
    float2 sum = {};
#pragma unroll 8
    for (int w = 0; w < warps_; ++w) {
      sum.x += pair_sums[w * warp_vectors_ * 4];
      sum.y += pair_sums[w * warp_vectors_ * 4 + 2];
    }
    return sum;
  }

 private:
  static constexpr int kInputs = kInputChunks<kRowTiles>;
  static_assert(kUnitVectors == kChunkVectors);
  static_assert(kRegisterUnits % kTiles == 0 && kInputs >= kRegisterUnits / kTiles);

  __device__ __forceinline__ void LoadInput(int i, uint4 (&input)[kRowTiles]) const {
    const int chunk = warp_ + i * warps_;
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
      input[r] = LoadFreshIf(input_rows_[r] + chunk * row_vectors_, chunk < chunks_);
    }
  }

  __device__ __forceinline__ void AddStaged(int i, const uint4 (&input)[kRowTiles],
                                            Sums<T, kRowTiles> (&sums)[kTiles]) const {
    const uint4* vectors = own_ + (i * kTiles - kRegisterUnits) * kChunkVectors + lane_;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      sums[tile].Add(vectors[tile * kChunkVectors], vectors[tile * kChunkVectors + 32], input);
    }
  }

  int lane_;
  int warp_;
  int warps_;
  int chunks_;
  int own_chunks_;
  int kept_;  // chunks whose weights are taken before the input is ready
  int warp_vectors_;
  int row_vectors_;
  uint4* shared_;
  uint4* own_;  // the warp's part of shared memory
  const uint4* tile_weights_[kTiles];
  const uint4* input_rows_[kRowTiles];
  uint4 low_[kRegisterUnits];
  uint4 high_[kRegisterUnits];
  uint4 input_[kInputs][kRowTiles];
};

}  // namespace seq2seq::kernels

#endif  // SEQ2SEQ_BACKEND_KERNELS_PROJECTION_FEW_PRODUCT_CUH_
