// A checkpoint directory, loaded and checked: spec, generation defaults and every weight by its
// role.
#ifndef SEQ2SEQ_BACKEND_MODEL_CHECKPOINT_H_
#define SEQ2SEQ_BACKEND_MODEL_CHECKPOINT_H_

#include <filesystem>
#include <memory>
#include <vector>

#include "backend/core/status.h"
#include "backend/model/generation_config.h"
#include "backend/model/model_spec.h"
#include "backend/model/tensor_view.h"

namespace seq2seq {

// A linear map y = W x + b: weight [out, in], bias [out] or absent.
struct LinearWeights {
  TensorView weight;
  TensorView bias;
};

// weight [d_model], bias [d_model] or absent.
struct NormWeights {
  TensorView weight;
  TensorView bias;
};

struct AttentionWeights {
  NormWeights norm;
  LinearWeights q, k, v;  // [heads x head_dim, d_model]
  LinearWeights o;        // [d_model, heads x head_dim]
};

struct FfnWeights {
  NormWeights norm;
  LinearWeights gate;  // [d_ff, d_model], activated; absent unless gated_ffn
  LinearWeights up;    // [d_ff, d_model]; activated unless gated_ffn
  LinearWeights down;  // [d_model, d_ff]
};

struct LayerWeights {
  AttentionWeights self_attention;
  AttentionWeights cross_attention;  // decoder only
  FfnWeights ffn;
  TensorView position_bias;  // [buckets, heads]; layer 0, or every layer if position_bias_per_layer
};

struct StackWeights {
  TensorView embedding;        // [vocab_size, d_model]
  TensorView position_table;   // [positions, d_model]; PositionKind::kTable
  NormWeights embedding_norm;  // absent unless embedding_norm
  std::vector<LayerWeights> layers;
  NormWeights final_norm;  // absent unless final_norm
  TensorView logits_bias;  // [vocab_size], decoder only, or absent
};

// Immutable after loading; safe from any thread; owns the file mappings that all views point into.
class Checkpoint {
 public:
  virtual ~Checkpoint() = default;

  virtual const ModelSpec& spec() const = 0;
  virtual const GenerationConfig& generation() const = 0;
  virtual const StackWeights& encoder() const = 0;
  virtual const StackWeights& decoder() const = 0;
  virtual const TensorView& lm_head() const = 0;  // [vocab_size, d_model]; the embedding where tied

  // Loads `directory` (config.json, generation_config.json, model.safetensors or its shards).
  // Missing, surplus or truncated tensors, wrong shapes or dtypes fail, naming file and tensor.
  // Surplus ones that transformers itself ignores pass, as do copies of tied weights that are
  // equal.
  [[nodiscard]] static Result<std::shared_ptr<const Checkpoint>> Load(
      const std::filesystem::path& directory);
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_MODEL_CHECKPOINT_H_
