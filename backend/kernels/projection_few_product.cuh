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
constexpr int kInputChunks = kRowTiles == 1   ? 8
                             : kRowTiles == 2 ? 6
                             : kRowTiles == 4 ? 3
                                              : 2;

// kTiles output tiles from first_tile on, rows first_row .. row_end - 1. Warp w of kWarps takes
// chunks w, w + kWarps, ... of all of the tiles; unit u of its weights is its chunk u / kTiles of
// tile u % kTiles. The first kRegisterUnits are taken to registers, the next `staged` to shared
// memory, both before the input is ready, and the rest after.
//
// Latency is all here: after the wait there is one round of reads, without a branch. Nor does
// a thread read what it does not need: all blocks read their inputs at once, and a line that each
// warp of each block asks for is served one request after the other. And what can be known when the
// kernel is compiled is: arithmetic of addresses is most of the instructions.
template <typename T, int kWarps, int kRowTiles, int kTiles>
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
        own_chunks_(Quotient(
            Quotient(args.inputs + kChunkInputs - 1, kChunkInputs) + kWarps - 1 - warp_, kWarps)),
        kept_(min(own_chunks_, Quotient(kRegisterUnits + staged, kTiles))),
        warp_vectors_(warp_vectors),
        row_vectors_(args.row_capacity * 4),
        shared_(shared),
        own_(shared + warp_ * warp_vectors + lane_) {
    const int chunks = Quotient(args.inputs + kChunkInputs - 1, kChunkInputs);
    const int last_tile = TileCount(args.outputs) - 1;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      tile_weights_[tile] =
          static_cast<const uint4*>(args.weights) + OperandLane(lane_) +
          (int64_t{min(first_tile + tile, last_tile)} * chunks + warp_) * kChunkVectors;
    }
    // Rows beyond the last read the first one, together with it.
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
      const int own_row = first_row + i * 8 + Quotient(lane_, 4);
      const int row = own_row < row_end ? own_row : first_row;
      input_rows_[i] = static_cast<const uint4*>(args.input) + row * 4 +
                       VectorPlace(row, Rest(lane_, 4)) + warp_ * row_vectors_;
    }
  }

  // What can be read before the input is ready.
  __device__ __forceinline__ void FetchWeights() {
#pragma unroll
    for (int u = 0; u < kRegisterUnits; ++u) {
      const uint4* vectors = tile_weights_[u % kTiles] + u / kTiles * kWeightStep;
      const bool there = u / kTiles < own_chunks_;
      low_[u] = there ? LoadStreaming(vectors) : uint4{};
      high_[u] = there ? LoadStreaming(vectors + 32) : uint4{};
    }
#pragma unroll
    for (int i = kRegisterUnits / kTiles; i < kMostKept; ++i) {
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        CopyPairToSharedAsyncIf<32 * sizeof(uint4)>(
            own_ + (i * kTiles + tile - kRegisterUnits) * kChunkVectors,
            tile_weights_[tile] + i * kWeightStep, i < kept_);
      }
    }
    CommitSharedCopies();
  }

  // After WaitForEarlierKernels().
  __device__ __forceinline__ void FetchInput() {
#pragma unroll
    for (int i = 0; i < kInputs; ++i) LoadInput(i, input_[i]);
  }

  // Leaves the warp's sums in shared memory, for PairSum() after a barrier.
  __device__ __forceinline__ void Multiply() {
    TileSums sums[kSets];
#pragma unroll
    for (int u = 0; u < kRegisterUnits; ++u) {
      sums[u / kTiles % kSets].tiles[u % kTiles].Add(low_[u], high_[u], input_[u / kTiles]);
    }
    WaitForSharedCopies<0>();
#pragma unroll
    for (int i = kRegisterUnits / kTiles; i < kInputs; ++i) {
      if (i < kept_) AddStaged(own_, i, input_[i], &sums[i % kSets]);
    }
    if (own_chunks_ > min(kept_, kInputs)) sums[0] = AddMore(Operands(), sums[0]);
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int set = 1; set < kSets; ++set) sums[0].tiles[tile].Add(sums[set].tiles[tile]);
    }
    if constexpr (!kSumsApart) __syncwarp();  // other lanes may still read the weights there
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      sums[0].tiles[tile].Store(SumsOf(warp_) + tile * kTilePairs);
    }
  }

  // The two sums of pair 0 .. kPairs - 1, see MakeEpilogue().
  __device__ __forceinline__ float2 PairSum(int pair) const {
    float2 sum = {};
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      const float2 part = SumsOf(w)[pair];
      sum.x += part.x;
      sum.y += part.y;
    }
    return sum;
  }

 private:
  static constexpr int kMostKept = (kRegisterUnits + kMaxStagedUnits) / kTiles;  // chunks
  static constexpr int kWeightStep = kWarps * kChunkVectors;
  static constexpr int kInputs = kInputChunks<kRowTiles>;
  static constexpr bool kSumsApart = kRowTiles == 1;
  // Chunks take turns with the sums, as products that add to the same ones wait for each other.
  static constexpr int kSets = kRowTiles == 1 && kTiles == 1 ? 2 : 1;

  struct TileSums {
    Sums<T, kRowTiles> tiles[kTiles];
  };

  // Where a lane's numbers are.
  struct ProductOperands {
    __device__ __forceinline__ void LoadInput(int i, uint4 (&input)[kRowTiles]) const {
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
        input[r] = LoadFreshIf(input_rows[r] + i * kWarps * row_vectors, i < own_chunks);
      }
    }

    int own_chunks;
    int kept;  // chunks whose weights are taken before the input is ready
    int row_vectors;
    uint4* staged;
    const uint4* weights[kTiles];
    const uint4* input_rows[kRowTiles];  // of the warp's first chunk
  };

  static_assert(kUnitVectors == kChunkVectors);
  static_assert(kRegisterUnits % kTiles == 0 && kInputs >= kRegisterUnits / kTiles);

  // A warp's sums of all pairs. They take the place of its weights, or, where they are few, have a
  // place of their own, which needs no arithmetic to be found.
  __device__ __forceinline__ float2* SumsOf(int warp) const {
    if constexpr (kSumsApart) {
      __shared__ float2 sums[kWarps][kPairs];
      return sums[warp];
    } else {
      return reinterpret_cast<float2*>(shared_ + warp * warp_vectors_);
    }
  }

  __device__ __forceinline__ void LoadInput(int i, uint4 (&input)[kRowTiles]) const {
    Operands().LoadInput(i, input);
  }

  // Adds the chunks whose inputs or weights have not been asked for yet. Not inlined: the code of
  // those who have none, the usual ones, is contiguous without it.
  __device__ __noinline__ static TileSums AddMore(ProductOperands operands, TileSums sums) {
    constexpr int kMoreInputs = kInputs < 3 ? kInputs : 3;
    uint4 input[kMoreInputs][kRowTiles];
#pragma unroll 1
    for (int first = kInputs; first < operands.kept; first += kMoreInputs) {
#pragma unroll
      for (int i = 0; i < kMoreInputs; ++i) operands.LoadInput(first + i, input[i]);
#pragma unroll
      for (int i = 0; i < kMoreInputs; ++i) {
        if (first + i < operands.kept) AddStaged(operands.staged, first + i, input[i], &sums);
      }
    }
#pragma unroll 2
    for (int i = operands.kept; i < operands.own_chunks; ++i) {
      operands.LoadInput(i, input[0]);
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        const uint4* vectors = operands.weights[tile] + i * kWeightStep;
        sums.tiles[tile].Add(LoadStreaming(vectors), LoadStreaming(vectors + 32), input[0]);
      }
    }
    return sums;
  }

  __device__ __forceinline__ ProductOperands Operands() const {
    ProductOperands operands;
    operands.own_chunks = own_chunks_;
    operands.kept = kept_;
    operands.row_vectors = row_vectors_;
    operands.staged = own_;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) operands.weights[tile] = tile_weights_[tile];
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) operands.input_rows[r] = input_rows_[r];
    return operands;
  }

  __device__ __forceinline__ static void AddStaged(const uint4* staged, int i,
                                                   const uint4 (&input)[kRowTiles],
                                                   TileSums* sums) {
    const uint4* vectors = staged + (i * kTiles - kRegisterUnits) * kChunkVectors;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      sums->tiles[tile].Add(vectors[tile * kChunkVectors], vectors[tile * kChunkVectors + 32],
                            input);
    }
  }

  int lane_;
  int warp_;
  int own_chunks_;
  int kept_;  // chunks whose weights are taken before the input is ready
  int warp_vectors_;
  int row_vectors_;
  uint4* shared_;
  uint4* own_;  // the lane's first vector in the warp's part of shared memory
  const uint4* tile_weights_[kTiles];
  const uint4* input_rows_[kRowTiles];  // of the warp's first chunk
  uint4 low_[kRegisterUnits];
  uint4 high_[kRegisterUnits];
  uint4 input_[kInputs][kRowTiles];
};

}  // namespace seq2seq::kernels

#endif  // SEQ2SEQ_BACKEND_KERNELS_PROJECTION_FEW_PRODUCT_CUH_
