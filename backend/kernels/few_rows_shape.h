// How a block of the projection for few rows divides its product. Host arithmetic alone.
#ifndef SEQ2SEQ_BACKEND_KERNELS_FEW_ROWS_SHAPE_H_
#define SEQ2SEQ_BACKEND_KERNELS_FEW_ROWS_SHAPE_H_

#include <algorithm>
#include <cstddef>

#include "backend/kernels/projection.h"

namespace seq2seq::kernels {

constexpr int kMaxFewRowsWarps = 16;
// Units of weights, 16 outputs x 32 inputs, that a warp keeps in registers and (at most, an even
// number) in shared memory before its input is ready.
constexpr int kRegisterUnits = 2;
constexpr int kMaxStagedUnits = 10;
constexpr int kUnitVectors = kTileOutputs * kChunkInputs * 2 / 16;  // of 16 bytes

struct FewRowsShape {
  int warps = 0;
  int staged = 0;        // units of weights in shared memory before the input is ready
  int warp_vectors = 0;  // 16 bytes each, of a warp's part of shared memory

  size_t shared_bytes() const { return size_t{16} * warp_vectors * warps; }
};

// For blocks of `tiles` (1 or 2) output tiles of 8 x row_tiles rows. Stages as many units as
// `shared_limit` bytes leave room for; the sums, which take the units' place, need up to 64 KB.
constexpr FewRowsShape FewRowsShapeFor(int inputs, int warps, int row_tiles, int tiles,
                                       size_t shared_limit) {
  FewRowsShape shape;
  shape.warps = warps;
  const int units = (ChunkCount(inputs) + warps - 1) / warps * tiles;
  const int room = static_cast<int>(shared_limit / (size_t{16} * kUnitVectors * warps));
  shape.staged = std::clamp(units - kRegisterUnits, 0, std::min(kMaxStagedUnits, room / 2 * 2));
  shape.warp_vectors = std::max(shape.staged * kUnitVectors, tiles * row_tiles * 32);
  return shape;
}

}  // namespace seq2seq::kernels

#endif  // SEQ2SEQ_BACKEND_KERNELS_FEW_ROWS_SHAPE_H_
