// The CPU engine's inner loops, as a table of functions for each instruction set.
//
// Each instruction set has one source file that is compiled for it alone; nothing else in the
// library may use those instructions. The table is chosen once, when an engine is created. No
// function here allocates, throws or keeps state: all are safe from any thread on disjoint outputs.
#ifndef SEQ2SEQ_BACKEND_CPU_KERNELS_KERNEL_TABLE_H_
#define SEQ2SEQ_BACKEND_CPU_KERNELS_KERNEL_TABLE_H_

#include <cstddef>
#include <cstdint>

#include "backend/core/dtype.h"
#include "backend/model/model_spec.h"

namespace seq2seq::cpu {

// Columns of one panel of a packed matrix, and positions of one KV block (whose keys are a panel).
inline constexpr int32_t kPanelColumns = 32;
// Floats that one vector operation may touch beyond the end of a row: row strides are multiples of
// it.
inline constexpr int32_t kLaneFloats = 16;

// y[r, c] = (accumulate ? y[r, c] : 0) + bias[c] + sum over k of x[r, k] * w[c, k], in fp32, k in
// ascending order within one fused or plain multiply-add chain: a row's result does not depend on
// the other rows. w is packed (packed_matrix.h); the call computes the panels [panel_begin,
// panel_end).
struct GemmArgs {
  const float* x = nullptr;  // [rows, depth]
  size_t x_stride = 0;       // floats between rows; not a multiple of 1024 where rows are many
  int32_t rows = 0;
  int32_t depth = 0;
  const std::byte* panels = nullptr;  // [panels, depth, kPanelColumns] of `dtype`
  DType dtype = DType::kFloat32;
  int32_t panel_begin = 0;
  int32_t panel_end = 0;
  int32_t columns = 0;  // real columns of the matrix; those of the last panel beyond are not stored
  const float* bias = nullptr;  // [columns] or null
  bool accumulate = false;
  float* y = nullptr;  // [rows, columns]
  size_t y_stride = 0;
};

// One query of one head against cached keys and values.
struct AttendArgs {
  const float* query = nullptr;  // [head_dim]
  int32_t head_dim = 0;
  float scale = 1.0F;               // of query . key
  const float* bias = nullptr;      // [count] or null
  const float* pool = nullptr;      // the KV pool
  size_t block_stride = 0;          // floats between blocks
  const int32_t* blocks = nullptr;  // ceil(count / kPanelColumns) of them
  size_t key_offset = 0;            // in a block, of this head's keys [head_dim, kPanelColumns]
  size_t value_offset = 0;  // in a block, of this head's values [kPanelColumns, value_stride]
  size_t value_stride = 0;  // a multiple of kLaneFloats
  int32_t count = 0;        // positions attended to, > 0
  float* scores = nullptr;  // scratch: count rounded up to kPanelColumns
  float* output = nullptr;  // [head_dim]
};

struct KernelTable {
  const char* name;  // "avx512", "avx2", "portable"

  void (*gemm)(const GemmArgs& args);
  void (*attend)(const AttendArgs& args);
  // out[i] = x[i] * weight[i] / sqrt(mean(x^2) + epsilon)
  void (*rms_norm)(const float* x, const float* weight, float epsilon, int32_t size, float* out);
  // x[i] = activation(x[i]) * (up ? up[i] : 1)
  void (*activate)(Activation kind, float* x, const float* up, int32_t size);
  // scores[i] = exp(scale * scores[i] + bias[i] - max) for i < count; returns 1 / their sum. bias
  // may be null. Floats up to the next multiple of kLaneFloats are overwritten with 0.
  float (*softmax)(float* scores, const float* bias, float scale, int32_t count);
};

enum class KernelLevel : uint8_t { kPortable, kAvx2, kAvx512 };

// The best level that this machine runs.
KernelLevel BestKernelLevel();
// Its table, or null if this machine or build can't run `level`.
const KernelTable* FindKernels(KernelLevel level);

}  // namespace seq2seq::cpu

#endif  // SEQ2SEQ_BACKEND_CPU_KERNELS_KERNEL_TABLE_H_
