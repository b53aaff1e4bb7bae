// Products of a weight matrix with the few rows of a decode step, and what is done with the result.
//
// y[row][out] = factor[row] * sum over in of weight[out][in] * input[row][in] + bias[out]
//
// For few rows a block computes 16 or 32 outputs: it takes its weights into registers and shared
// memory before it waits for its input, so that a chain of these kernels, launched as dependents,
// streams weights without a pause. For more rows a block computes 64 or 128 outputs of 64 rows and
// more, so that inputs are read less often, and starts with as many weights as fit.
#ifndef SEQ2SEQ_BACKEND_KERNELS_PROJECTION_H_
#define SEQ2SEQ_BACKEND_KERNELS_PROJECTION_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "backend/kernels/activation_kind.h"
#include "backend/kernels/element_type.h"
#include "backend/kernels/kv_layout.h"
#include "backend/kernels/launch.h"
#include "backend/kernels/step_state.h"

namespace seq2seq::kernels {

// Rows of outputs that a block computes, and the granularity of inputs.
constexpr int32_t kTileOutputs = 16;
constexpr int32_t kChunkInputs = 32;

__host__ __device__ constexpr int32_t TileCount(int32_t outputs) {
  return (outputs + kTileOutputs - 1) / kTileOutputs;
}
__host__ __device__ constexpr int32_t ChunkCount(int32_t inputs) {
  return (inputs + kChunkInputs - 1) / kChunkInputs;
}

// Elements of a packed matrix; the caller fills them with zeros before packing.
constexpr int64_t PackedElements(int32_t outputs, int32_t inputs) {
  return int64_t{TileCount(outputs)} * kTileOutputs * ChunkCount(inputs) * kChunkInputs;
}

struct PackArgs {
  const void* source = nullptr;  // [rows][columns], row-major
  ElementType source_type = ElementType::kFloat32;
  int32_t rows = 0;
  int32_t columns = 0;
  void* packed = nullptr;
  ElementType packed_type = ElementType::kFloat32;
  // Plain: source row r becomes output first_output + r. Paired: rows of two matrices alternate in
  // groups of 8, gate (half 0) then up (half 1), so that one thread meets both at the end.
  bool paired = false;
  int32_t first_output = 0;
  int32_t half = 0;
};

// Casts and reorders a matrix for LaunchProjection.
cudaError_t LaunchPack(const PackArgs& args, const LaunchContext& context);

// The factor of a row: output_scale, times RMSNorm's if sum_squares is set (see Residual).
struct RowFactor {
  const float* sum_squares = nullptr;  // [row_capacity][sum_stride], the first `parts` in use
  int32_t sum_stride = 0;
  int32_t parts = 0;
  float inverse_width = 0.0F;
  float epsilon = 0.0F;
  const float* scale_in = nullptr;  // [row_capacity], the scale that the input was written with
  float* scale_out = nullptr;       // [row_capacity], for the next writer of the residual
  float output_scale = 1.0F;
};

enum class ProjectionOutput : uint8_t {
  kQueryKeyValue,    // outputs are queries, then (if any are left) keys and values for the cache
  kResidual,         // added to the residual stream
  kActivation,       // activated
  kGatedActivation,  // pairs: activated gate times up
  kLogits,
};

struct QueryKeyValueOutput {
  float* query = nullptr;  // [rows][heads x head_dim]; null: queries are not written
  int32_t inner = 0;       // heads x head_dim
  void* pool = nullptr;
  KvLayout layout;
  int64_t layer_offset = 0;  // elements, of this layer's keys in a block
  const int32_t* self_blocks = nullptr;
  int32_t self_stride = 0;
};

struct ResidualOutput {
  Residual residual;                   // sum_squares gets one part a tile
  const float* norm_weight = nullptr;  // [width], of the norm that comes next
  const float* scale = nullptr;        // [row_capacity]
};

struct ActivationOutput {
  void* values = nullptr;  // [outputs / 32][row_capacity][32], the model's number format
  ActivationKind kind = ActivationKind::kRelu;
};

// What one tile of logits says about a row's choice.
struct LogitsPart {
  float best = 0.0F;       // largest logit that may be chosen; -infinity if none may
  int32_t best_index = 0;  // the lowest index that has it
  float max = 0.0F;        // of all
  float sum_exp = 0.0F;    // of exp(logit - max) of all
};

struct LogitsOutput {
  LogitsPart* parts = nullptr;  // [row_capacity][tiles]
  float* logits = nullptr;      // [row_capacity][outputs]; written for rows that sample
  bool write_all = false;       // for every row
  const int32_t* eos_tokens = nullptr;
  int32_t eos_count = 0;
};

struct ProjectionArgs {
  const void* weights = nullptr;  // packed
  int32_t outputs = 0;            // paired: both halves together
  int32_t inputs = 0;
  const float* bias = nullptr;  // [outputs] or null
  const void* input = nullptr;  // [inputs / 32][row_capacity][32], the model's number format
  int32_t rows = 0;             // the bucket
  int32_t row_capacity = 0;
  // Blocks (a cluster) that may share the inputs of some outputs: 1, or up to 4 on compute
  // capability 9.0 and later.
  int32_t max_splits = 1;
  const RowInfo* row_infos = nullptr;  // [rows]; used by kQueryKeyValue and kLogits
  RowFactor factor;
  ProjectionOutput output = ProjectionOutput::kResidual;
  QueryKeyValueOutput query_key_value;
  ResidualOutput residual;
  ActivationOutput activation;
  LogitsOutput logits;
};

cudaError_t LaunchProjection(ElementType type, const ProjectionArgs& args,
                             const LaunchContext& context);

}  // namespace seq2seq::kernels

#endif  // SEQ2SEQ_BACKEND_KERNELS_PROJECTION_H_
