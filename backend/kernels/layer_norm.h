// LayerNorm of the residual stream, and the start of a stack whose positions are a table's rows.
//
// RMSNorm has other ways: in the decoder it is split between projections (see Residual), in the
// encoder it is rms_norm.h's.
#ifndef SEQ2SEQ_BACKEND_KERNELS_LAYER_NORM_H_
#define SEQ2SEQ_BACKEND_KERNELS_LAYER_NORM_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "backend/kernels/element_type.h"
#include "backend/kernels/launch.h"

namespace seq2seq::kernels {

// What is done to a row before its norm: values = values * scale + table[position + offset].
struct PositionedRows {
  const float* table = nullptr;  // [table_rows][width]; null: nothing is done
  int32_t table_rows = 0;        // positions beyond them read the last
  int32_t offset = 0;
  float scale = 1.0F;
  const int32_t* positions = nullptr;  // a row's is at row * position_stride
  int32_t position_stride = 1;
};

// All pointers are device memory, aligned to 16 bytes but for `positions`.
struct LayerNormArgs {
  float* values = nullptr;  // [rows][width], the residual stream
  PositionedRows start;
  const float* weight = nullptr;  // [width]; null: the output is the values as they are
  const float* bias = nullptr;    // [width] or null
  float epsilon = 0.0F;
  int32_t rows = 0;
  int32_t width = 0;  // a multiple of 4
  // The residual stream goes on with the normed row (post-norm, norms of embeddings).
  bool write_back = false;
  // In the model's number format, or null: [rows][width], or with a row_capacity (a multiple of 8)
  // [width / 32][row_capacity][32], see operand_layout.h.
  void* output = nullptr;
  int32_t row_capacity = 0;
};

// output = (values - mean) / sqrt(variance + epsilon) * weight + bias, each row by its own mean and
// variance (Ba, Kiros and Hinton, "Layer Normalization", 2016). Arithmetic is float; the output is
// rounded once, float16 saturates.
cudaError_t LaunchLayerNorm(ElementType type, const LayerNormArgs& args,
                            const LaunchContext& context);

}  // namespace seq2seq::kernels

#endif  // SEQ2SEQ_BACKEND_KERNELS_LAYER_NORM_H_
