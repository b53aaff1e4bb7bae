// One description for all encoder-decoder families: what config.json means, as numbers and choices.
#ifndef SEQ2SEQ_BACKEND_MODEL_MODEL_SPEC_H_
#define SEQ2SEQ_BACKEND_MODEL_MODEL_SPEC_H_

#include <cstdint>
#include <filesystem>
#include <string>

#include "backend/core/status.h"

namespace seq2seq {

enum class NormKind : uint8_t { kRms, kLayer };
enum class NormPlacement : uint8_t { kPre, kPost };
// How attention learns of positions: by biases of its scores, a bucket of distances each, or by a
// row of a table (learned, or of sinusoids) that is added to each token's embedding.
enum class PositionKind : uint8_t { kRelativeBuckets, kTable };
enum class Activation : uint8_t { kRelu, kGelu, kGeluTanh, kSilu };

// One of the two stacks.
struct StackSpec {
  int32_t layers = 0;
  int32_t heads = 0;
  int32_t d_ff = 0;
  // Every layer has a relative-position table of its own (UMT5), or all use layer 0's.
  bool position_bias_per_layer = false;
};

// T5's relative positions: Raffel et al. 2020, "Exploring the Limits of Transfer Learning", 2.1;
// distances beyond max_distance share the last bucket.
struct RelativePositionSpec {
  int32_t buckets = 0;
  int32_t max_distance = 0;
};

struct ModelSpec {
  std::string model_type;  // config.json's
  int32_t vocab_size = 0;
  int32_t d_model = 0;
  int32_t head_dim = 0;  // heads x head_dim may differ from d_model
  StackSpec encoder;
  StackSpec decoder;

  NormKind norm = NormKind::kRms;
  NormPlacement norm_placement = NormPlacement::kPre;
  float norm_epsilon = 1e-6F;
  bool final_norm = true;
  PositionKind positions = PositionKind::kRelativeBuckets;
  RelativePositionSpec relative_positions;
  int32_t position_offset = 0;   // kTable: the row of a sequence's first token
  float embedding_scale = 1.0F;  // of the tokens' embeddings: d_model^0.5 where scaled
  bool embedding_norm = false;   // a norm before the first layer, positions added
  Activation activation = Activation::kRelu;
  bool gated_ffn = false;
  bool tied_head = false;        // the LM head is the embedding
  float attention_scale = 1.0F;  // of q.k; 1 for T5
  float head_input_scale =
      1.0F;                   // of the decoder's output before the head: d_model^-0.5 where scaled
  int32_t max_positions = 0;  // 0: unlimited

  int32_t pad_token_id = 0;

  int32_t encoder_inner() const { return encoder.heads * head_dim; }
  int32_t decoder_inner() const { return decoder.heads * head_dim; }
};

// Reads <directory>/config.json. kInvalidArgument or kNotFound names the file, the key, its value
// and what is allowed; unknown model types and activations are errors, never guesses.
[[nodiscard]] Result<ModelSpec> LoadModelSpec(const std::filesystem::path& directory);

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_MODEL_MODEL_SPEC_H_
