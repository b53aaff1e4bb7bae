// Matrix products over packed panels, for any number of rows. Included by kernels_<set>.cc only.
#ifndef SEQ2SEQ_BACKEND_CPU_KERNELS_GEMM_INL_H_
#define SEQ2SEQ_BACKEND_CPU_KERNELS_GEMM_INL_H_

#include "backend/cpu/kernels/vec.h"

namespace seq2seq::cpu {
namespace {

// A panel's row of 32 columns is read as kPairs pairs of vectors: pair p holds the columns
// [p * kWidth, +kWidth) and those 16 further on.
constexpr int kPairs = 16 / kWidth;
// How far ahead of its use a panel's memory is asked for: hardware prefetchers stop at page
// borders.
constexpr size_t kPrefetchBytes = 2048;
// Bytes of x that the panels of one call pass over again and again: they should stay in the L2
// cache.
constexpr size_t kRowBlockBytes = 512 << 10;

template <DType kDType>
SEQ2SEQ_INLINE void LoadPair(const std::byte* row, int pair, Vec* low, Vec* high) {
  if constexpr (kDType == DType::kFloat32) {
    const float* p = reinterpret_cast<const float*>(row) + pair * kWidth;
    *low = Load(p);
    *high = Load(p + 16);
  } else if constexpr (kDType == DType::kBFloat16) {
    // Packed as 16 words: column c in the low half, column c + 16 in the high half.
    const VecInt words = *reinterpret_cast<const VecIntUnaligned*>(row + pair * kWidth * 4);
    *low = AsFloat(words << 16);
    *high = AsFloat(words & static_cast<int32_t>(0xffff0000U));
  } else {
    const uint16_t* p = reinterpret_cast<const uint16_t*>(row) + pair * kWidth;
    *low = LoadFloat16(p);
    *high = LoadFloat16(p + 16);
  }
}

// The place of one tile: kRows rows of x against the pairs [first_pair, first_pair + kTilePairs) of
// panels that lie `panel_bytes` apart.
struct Tile {
  const GemmArgs* args;
  const std::byte* panel;
  size_t panel_bytes;
  int first_row;
  int first_column;  // of the first panel
  int first_pair;
};

SEQ2SEQ_INLINE void StoreColumns(const GemmArgs& args, int row, int column, Vec sum) {
  float* y = args.y + row * args.y_stride + column;
  const int valid = args.columns - column;
  if (valid >= kWidth) {
    if (args.bias != nullptr) sum += Load(args.bias + column);
    if (args.accumulate) sum += Load(y);
    Store(y, sum);
    return;
  }
  for (int i = 0; i < valid; ++i) {
    float value = sum[i];
    if (args.bias != nullptr) value += args.bias[column + i];
    y[i] = args.accumulate ? y[i] + value : value;
  }
}

template <DType kDType, int kRows, int kTilePairs>
__attribute__((noinline)) void ComputeTile(const Tile& tile) {
  constexpr int kGroups = (kRows + 2) / 3;
  constexpr size_t kRowBytes = kPanelColumns * DTypeBytes(kDType);
  const GemmArgs& args = *tile.args;
  const size_t stride = args.x_stride * sizeof(float);
  Vec sums[kRows][kTilePairs][2] = {};
  // Rows are addressed in threes (base, base + stride, base + 2 * stride): few enough pointers to
  // stay in registers.
  const char* groups[kGroups];
#pragma GCC unroll 8
  for (int g = 0; g < kGroups; ++g) {
    groups[g] = reinterpret_cast<const char*>(args.x + (tile.first_row + 3 * g) * args.x_stride);
  }
  const std::byte* panel = tile.panel;
  for (int k = 0; k < args.depth; ++k) {
    Vec low[kTilePairs];
    Vec high[kTilePairs];
#pragma GCC unroll 4
    for (int p = 0; p < kTilePairs; ++p) {
      const std::byte* row = panel + (kPairs == 1 ? p * tile.panel_bytes : 0);
      __builtin_prefetch(row + kPrefetchBytes);
      if constexpr (kRowBytes > 64) __builtin_prefetch(row + kPrefetchBytes + 64);
      LoadPair<kDType>(row, kPairs == 1 ? 0 : tile.first_pair + p, &low[p], &high[p]);
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const Vec x = Splat(*reinterpret_cast<const float*>(groups[r / 3] + (r % 3) * stride));
#pragma GCC unroll 4
      for (int p = 0; p < kTilePairs; ++p) {
        sums[r][p][0] += x * low[p];
        sums[r][p][1] += x * high[p];
      }
    }
    panel += kRowBytes;
#pragma GCC unroll 8
    for (int g = 0; g < kGroups; ++g) groups[g] += sizeof(float);
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int p = 0; p < kTilePairs; ++p) {
      const int column =
          tile.first_column + (kPairs == 1 ? p * kPanelColumns : (tile.first_pair + p) * kWidth);
      StoreColumns(args, tile.first_row + r, column, sums[r][p][0]);
      StoreColumns(args, tile.first_row + r, column + 16, sums[r][p][1]);
    }
  }
}

using TileFunction = void (*)(const Tile&);

// Tiles of two pairs are for up to kWideRows rows, which leave registers free: more independent
// sums hide the latency of the additions.
constexpr int kWideRows = 2;

template <DType kDType, int kTilePairs>
SEQ2SEQ_INLINE TileFunction TileFor(int rows) {
  if constexpr (kTilePairs == 2) {
    static constexpr TileFunction kFunctions[kWideRows] = {ComputeTile<kDType, 1, 2>,
                                                           ComputeTile<kDType, 2, 2>};
    return kFunctions[rows - 1];
  } else {
    static constexpr TileFunction kFunctions[kMaxTileRows] = {
        ComputeTile<kDType, 1, 1>,  ComputeTile<kDType, 2, 1>,  ComputeTile<kDType, 3, 1>,
        ComputeTile<kDType, 4, 1>,  ComputeTile<kDType, 5, 1>,  ComputeTile<kDType, 6, 1>,
#if defined(__AVX512F__)
        ComputeTile<kDType, 7, 1>,  ComputeTile<kDType, 8, 1>,  ComputeTile<kDType, 9, 1>,
        ComputeTile<kDType, 10, 1>, ComputeTile<kDType, 11, 1>, ComputeTile<kDType, 12, 1>,
#endif
    };
    return kFunctions[rows - 1];
  }
}

// All rows of a block against `kTilePairs` pairs, in tiles whose heights differ by at most one.
template <DType kDType, int kTilePairs>
SEQ2SEQ_INLINE void ComputeRows(Tile tile, int row_begin, int row_end, int max_tile_rows) {
  const int rows = row_end - row_begin;
  const int tiles = (rows + max_tile_rows - 1) / max_tile_rows;
  const int height = rows / tiles;
  const int taller = rows % tiles;
  tile.first_row = row_begin;
  for (int t = 0; t < tiles; ++t) {
    const int tile_rows = height + (t < taller ? 1 : 0);
    TileFor<kDType, kTilePairs>(tile_rows)(tile);
    tile.first_row += tile_rows;
  }
}

template <DType kDType>
void GemmOf(const GemmArgs& args) {
  constexpr size_t kPanelRowBytes = kPanelColumns * DTypeBytes(kDType);
  const size_t panel_bytes = args.depth * kPanelRowBytes;
  const size_t x_row_bytes = static_cast<size_t>(args.depth) * sizeof(float);
  size_t block_tiles = kRowBlockBytes / (x_row_bytes * kMaxTileRows);
  const int block = static_cast<int>(block_tiles < 1 ? 1 : block_tiles) * kMaxTileRows;
  for (int row = 0; row < args.rows; row += block) {
    const int row_end = row + block < args.rows ? row + block : args.rows;
    const bool wide = row_end - row <= kWideRows;
    int panel = args.panel_begin;
    while (panel < args.panel_end) {
      Tile tile{&args, args.panels + panel * panel_bytes, panel_bytes, row, panel * kPanelColumns,
                0};
      if constexpr (kPairs == 1) {
        if (wide && panel + 1 < args.panel_end) {
          ComputeRows<kDType, 2>(tile, row, row_end, kWideRows);
          panel += 2;
          continue;
        }
        ComputeRows<kDType, 1>(tile, row, row_end, kMaxTileRows);
      } else {
        for (tile.first_pair = 0; tile.first_pair < kPairs;) {
          if (wide) {
            ComputeRows<kDType, 2>(tile, row, row_end, kWideRows);
            tile.first_pair += 2;
          } else {
            ComputeRows<kDType, 1>(tile, row, row_end, kMaxTileRows);
            tile.first_pair += 1;
          }
        }
      }
      ++panel;
    }
  }
}

void Gemm(const GemmArgs& args) {
  switch (args.dtype) {
    case DType::kFloat32:
      return GemmOf<DType::kFloat32>(args);
    case DType::kFloat16:
      return GemmOf<DType::kFloat16>(args);
    case DType::kBFloat16:
      return GemmOf<DType::kBFloat16>(args);
  }
}

}  // namespace
}  // namespace seq2seq::cpu

#endif  // SEQ2SEQ_BACKEND_CPU_KERNELS_GEMM_INL_H_
