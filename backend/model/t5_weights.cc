#include "backend/model/t5_weights.h"

#include <array>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "backend/core/format.h"

namespace seq2seq {
namespace {

constexpr std::string_view kHeadName = "lm_head.weight";
constexpr std::array<std::string_view, 3> kEmbeddingNames = {
    "shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"};

bool SameTensor(const TensorView& a, const TensorView& b) {
  return a.dtype == b.dtype && a.shape == b.shape &&
         std::memcmp(a.data, b.data, static_cast<size_t>(a.elements()) * DTypeBytes(a.dtype)) == 0;
}

class T5Taker {
 public:
  T5Taker(const ModelSpec& spec, TensorStore* store) : spec_(spec), store_(store) {}

  Result<T5Weights> Take() {
    T5Weights weights;
    SEQ2SEQ_ASSIGN_OR_RETURN(const TensorView embedding, TakeEmbedding());
    SEQ2SEQ_RETURN_IF_ERROR(TakeStack("encoder", spec_.encoder, false, &weights.encoder));
    SEQ2SEQ_RETURN_IF_ERROR(TakeStack("decoder", spec_.decoder, true, &weights.decoder));
    weights.encoder.embedding = embedding;
    weights.decoder.embedding = embedding;
    SEQ2SEQ_RETURN_IF_ERROR(TakeHead(embedding, &weights));
    // Old t5 and mt5 files carry a table for cross-attention, which has no positions.
    if (spec_.model_type != "umt5") {
      store_->Ignore("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight");
    }
    return weights;
  }

 private:
  std::vector<int64_t> EmbeddingShape() const { return {spec_.vocab_size, spec_.d_model}; }

  std::unexpected<Error> CopiesDiffer(std::string_view name, std::string_view other) const {
    return InvalidArgument(
        Format("{}: tensor '{}' differs from '{}' in {}; weights that are tied must be equal",
               store_->FileOf(name), name, other, store_->FileOf(other)));
  }

  Result<TensorView> TakeEmbedding() {
    TensorView embedding;
    for (const std::string_view name : kEmbeddingNames) {
      if (!store_->Has(name)) continue;
      SEQ2SEQ_ASSIGN_OR_RETURN(const TensorView found, store_->Take(name, EmbeddingShape()));
      if (!embedding.present()) {
        embedding = found;
        embedding_name_ = name;
      } else if (!SameTensor(embedding, found)) {
        return CopiesDiffer(name, embedding_name_);
      }
    }
    if (embedding.present()) return embedding;
    const bool in_head = spec_.tied_head && store_->Has(kHeadName);
    embedding_name_ = in_head ? kHeadName : kEmbeddingNames.front();
    return store_->Take(embedding_name_, EmbeddingShape());
  }

  // transformers 5 saves tie_word_embeddings: true for models whose head differs from the
  // embedding, too. Its sign for those is that the head's input isn't scaled. Where it is, a head
  // that differs is an error.
  Status TakeHead(const TensorView& embedding, T5Weights* weights) {
    if (spec_.tied_head && !store_->Has(kHeadName)) {
      weights->lm_head = embedding;
      weights->tied_head = true;
      return OkStatus();
    }
    SEQ2SEQ_ASSIGN_OR_RETURN(weights->lm_head, store_->Take(kHeadName, EmbeddingShape()));
    weights->tied_head = SameTensor(weights->lm_head, embedding);
    if (weights->tied_head) {
      weights->lm_head = embedding;
    } else if (spec_.tied_head && spec_.head_input_scale != 1.0F) {
      return CopiesDiffer(kHeadName, embedding_name_);
    }
    return OkStatus();
  }

  Status TakeWeight(const std::string& name, std::vector<int64_t> shape, TensorView* weight) {
    SEQ2SEQ_ASSIGN_OR_RETURN(*weight, store_->Take(name + ".weight", shape));
    return OkStatus();
  }

  Status TakeStack(const std::string& side, const StackSpec& stack, bool is_decoder,
                   StackWeights* weights) {
    weights->layers.resize(stack.layers);
    for (int32_t index = 0; index < stack.layers; ++index) {
      const std::string block = Format("{}.block.{}.layer", side, index);
      LayerWeights& layer = weights->layers[index];
      SEQ2SEQ_RETURN_IF_ERROR(
          TakeAttention(block + ".0", "SelfAttention", stack, &layer.self_attention));
      if (index == 0 || stack.position_bias_per_layer) {
        SEQ2SEQ_RETURN_IF_ERROR(TakeWeight(block + ".0.SelfAttention.relative_attention_bias",
                                           {spec_.relative_positions.buckets, stack.heads},
                                           &layer.position_bias));
      }
      if (is_decoder) {
        SEQ2SEQ_RETURN_IF_ERROR(
            TakeAttention(block + ".1", "EncDecAttention", stack, &layer.cross_attention));
      }
      SEQ2SEQ_RETURN_IF_ERROR(TakeFfn(block + (is_decoder ? ".2" : ".1"), stack, &layer.ffn));
    }
    return TakeWeight(side + ".final_layer_norm", {spec_.d_model}, &weights->final_norm.weight);
  }

  Status TakeAttention(const std::string& prefix, std::string_view kind, const StackSpec& stack,
                       AttentionWeights* attention) {
    const int64_t inner = int64_t{stack.heads} * spec_.head_dim;
    const std::string base = Format("{}.{}.", prefix, kind);
    SEQ2SEQ_RETURN_IF_ERROR(
        TakeWeight(prefix + ".layer_norm", {spec_.d_model}, &attention->norm.weight));
    SEQ2SEQ_RETURN_IF_ERROR(TakeWeight(base + "q", {inner, spec_.d_model}, &attention->q.weight));
    SEQ2SEQ_RETURN_IF_ERROR(TakeWeight(base + "k", {inner, spec_.d_model}, &attention->k.weight));
    SEQ2SEQ_RETURN_IF_ERROR(TakeWeight(base + "v", {inner, spec_.d_model}, &attention->v.weight));
    return TakeWeight(base + "o", {spec_.d_model, inner}, &attention->o.weight);
  }

  Status TakeFfn(const std::string& prefix, const StackSpec& stack, FfnWeights* ffn) {
    const std::vector<int64_t> wide = {stack.d_ff, spec_.d_model};
    const std::string base = prefix + ".DenseReluDense.";
    SEQ2SEQ_RETURN_IF_ERROR(TakeWeight(prefix + ".layer_norm", {spec_.d_model}, &ffn->norm.weight));
    if (spec_.gated_ffn) {
      SEQ2SEQ_RETURN_IF_ERROR(TakeWeight(base + "wi_0", wide, &ffn->gate.weight));
      SEQ2SEQ_RETURN_IF_ERROR(TakeWeight(base + "wi_1", wide, &ffn->up.weight));
    } else {
      SEQ2SEQ_RETURN_IF_ERROR(TakeWeight(base + "wi", wide, &ffn->up.weight));
    }
    return TakeWeight(base + "wo", {spec_.d_model, stack.d_ff}, &ffn->down.weight);
  }

  const ModelSpec& spec_;
  TensorStore* store_;
  std::string_view embedding_name_;
};

}  // namespace

Result<T5Weights> TakeT5Weights(const ModelSpec& spec, TensorStore* store) {
  return T5Taker(spec, store).Take();
}

}  // namespace seq2seq
