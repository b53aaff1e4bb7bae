#include "backend/testing/reference_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

namespace seq2seq {
namespace {

using Row = ReferenceModel::Row;
using Rows = ReferenceModel::Rows;

double ValueAt(const TensorView& tensor, int64_t index) {
  if (tensor.dtype != DType::kFloat32) throw std::invalid_argument("a tensor is not float32");
  float value = 0.0F;
  std::memcpy(&value, tensor.data + index * static_cast<int64_t>(sizeof(value)), sizeof(value));
  return value;
}

// W x + b
Row Multiply(const LinearWeights& linear, const Row& x) {
  const auto inputs = static_cast<int64_t>(x.size());
  Row y(linear.weight.shape[0]);
  for (size_t out = 0; out < y.size(); ++out) {
    if (linear.bias.present()) y[out] = ValueAt(linear.bias, static_cast<int64_t>(out));
    for (int64_t in = 0; in < inputs; ++in) {
      y[out] += ValueAt(linear.weight, static_cast<int64_t>(out) * inputs + in) * x[in];
    }
  }
  return y;
}

double Activated(Activation activation, double x) {
  switch (activation) {
    case Activation::kRelu:
      return std::max(x, 0.0);
    case Activation::kGelu:  // Hendrycks and Gimpel 2016
      return x * 0.5 * (1.0 + std::erf(x / std::sqrt(2.0)));
    case Activation::kGeluTanh:
      return x * 0.5 * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::kSilu:  // Elfwing et al. 2018
      return x / (1.0 + std::exp(-x));
  }
  throw std::invalid_argument("unknown activation");
}

// Raffel et al. 2020, 2.1: half of a side's buckets hold one distance each, the others ever more,
// up to max_distance; in both directions each has half of the buckets.
int32_t BucketOf(int32_t query, int32_t key, bool causal, const RelativePositionSpec& spec) {
  const int32_t side = causal ? spec.buckets : spec.buckets / 2;
  const int32_t distance = std::abs(key - query);
  const int32_t first = !causal && key > query ? side : 0;
  const int32_t exact = side / 2;
  if (distance < exact) return first + distance;
  const double share = std::log(static_cast<double>(distance) / exact) /
                       std::log(static_cast<double>(spec.max_distance) / exact);
  return first + std::min(side - 1, exact + static_cast<int32_t>(share * (side - exact)));
}

void MakeSoftmax(Row* scores) {
  const double largest = *std::ranges::max_element(*scores);
  double sum = 0.0;
  for (double& score : *scores) sum += score = std::exp(score - largest);
  for (double& score : *scores) score /= sum;
}

}  // namespace

double LogProbability(const Row& logits, int32_t token) {
  Row probabilities = logits;
  MakeSoftmax(&probabilities);
  return std::log(probabilities[token]);
}

Row ReferenceModel::Norm(const NormWeights& norm, const Row& x) const {
  const ModelSpec& spec = checkpoint_.spec();
  const auto width = static_cast<double>(x.size());
  double mean = 0.0;
  if (spec.norm == NormKind::kLayer) {
    for (const double value : x) mean += value / width;
  }
  double square = 0.0;
  for (const double value : x) square += (value - mean) * (value - mean) / width;
  Row y(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    y[i] = (x[i] - mean) / std::sqrt(square + static_cast<double>(spec.norm_epsilon)) *
           ValueAt(norm.weight, at);
    if (norm.bias.present()) y[i] += ValueAt(norm.bias, at);
  }
  return y;
}

// What a sub-layer reads.
Row ReferenceModel::Normed(const NormWeights& norm, const Row& x) const {
  return checkpoint_.spec().norm_placement == NormPlacement::kPre ? Norm(norm, x) : x;
}

// What becomes of a sub-layer's result.
void ReferenceModel::AddTo(Row* x, const Row& result, const NormWeights& norm) const {
  for (size_t i = 0; i < x->size(); ++i) (*x)[i] += result[i];
  if (checkpoint_.spec().norm_placement == NormPlacement::kPost) *x = Norm(norm, *x);
}

Rows ReferenceModel::Embed(const StackWeights& stack, std::span<const int32_t> tokens) const {
  const ModelSpec& spec = checkpoint_.spec();
  Rows rows;
  for (size_t place = 0; place < tokens.size(); ++place) {
    Row& row = rows.emplace_back();
    for (int64_t k = 0; k < spec.d_model; ++k) {
      double value = ValueAt(stack.embedding, int64_t{tokens[place]} * spec.d_model + k) *
                     static_cast<double>(spec.embedding_scale);
      if (spec.positions == PositionKind::kTable) {
        const int64_t position = static_cast<int64_t>(place) + spec.position_offset;
        value += ValueAt(stack.position_table, position * spec.d_model + k);
      }
      row.push_back(value);
    }
    if (spec.embedding_norm) row = Norm(stack.embedding_norm, row);
  }
  return rows;
}

// The results of the output projection. position_bias: [buckets, heads], or null.
Rows ReferenceModel::Attend(const AttentionWeights& weights, const StackSpec& stack,
                            const Rows& queries_from, const Rows& keys_from,
                            const TensorView* position_bias, bool causal) const {
  const ModelSpec& spec = checkpoint_.spec();
  Rows keys, values, results;
  for (const Row& x : keys_from) {
    keys.push_back(Multiply(weights.k, x));
    values.push_back(Multiply(weights.v, x));
  }
  for (size_t i = 0; i < queries_from.size(); ++i) {
    const Row query = Multiply(weights.q, queries_from[i]);
    const size_t seen = causal ? i + 1 : keys.size();
    Row attended(query.size());
    for (int32_t head = 0; head < stack.heads; ++head) {
      const int32_t first = head * spec.head_dim;
      Row scores(seen);
      for (size_t j = 0; j < seen; ++j) {
        for (int32_t d = first; d < first + spec.head_dim; ++d) scores[j] += query[d] * keys[j][d];
        scores[j] *= static_cast<double>(spec.attention_scale);
        if (position_bias == nullptr) continue;
        const int32_t bucket = BucketOf(static_cast<int32_t>(i), static_cast<int32_t>(j), causal,
                                        spec.relative_positions);
        scores[j] += ValueAt(*position_bias, int64_t{bucket} * stack.heads + head);
      }
      MakeSoftmax(&scores);
      for (size_t j = 0; j < seen; ++j) {
        for (int32_t d = first; d < first + spec.head_dim; ++d) {
          attended[d] += scores[j] * values[j][d];
        }
      }
    }
    results.push_back(Multiply(weights.o, attended));
  }
  return results;
}

Row ReferenceModel::FeedForward(const FfnWeights& weights, const Row& x) const {
  const ModelSpec& spec = checkpoint_.spec();
  Row wide = Multiply(weights.up, x);
  if (spec.gated_ffn) {
    const Row gate = Multiply(weights.gate, x);
    for (size_t i = 0; i < wide.size(); ++i) wide[i] *= Activated(spec.activation, gate[i]);
  } else {
    for (double& value : wide) value = Activated(spec.activation, value);
  }
  return Multiply(weights.down, wide);
}

void ReferenceModel::AttendToSelf(const StackWeights& stack, const LayerWeights& layer,
                                  const StackSpec& spec, bool causal, Rows* rows) const {
  const AttentionWeights& weights = layer.self_attention;
  const LayerWeights& biased = layer.position_bias.present() ? layer : stack.layers[0];
  const bool relative = checkpoint_.spec().positions == PositionKind::kRelativeBuckets;
  Rows normed;
  for (const Row& x : *rows) normed.push_back(Normed(weights.norm, x));
  const Rows attended =
      Attend(weights, spec, normed, normed, relative ? &biased.position_bias : nullptr, causal);
  for (size_t i = 0; i < rows->size(); ++i) AddTo(&(*rows)[i], attended[i], weights.norm);
}

Rows ReferenceModel::Encode(std::span<const int32_t> source) const {
  const ModelSpec& spec = checkpoint_.spec();
  const StackWeights& stack = checkpoint_.encoder();
  Rows rows = Embed(stack, source);
  for (const LayerWeights& layer : stack.layers) {
    AttendToSelf(stack, layer, spec.encoder, false, &rows);
    for (Row& row : rows)
      AddTo(&row, FeedForward(layer.ffn, Normed(layer.ffn.norm, row)), layer.ffn.norm);
  }
  if (!spec.final_norm) return rows;
  for (Row& row : rows) row = Norm(stack.final_norm, row);
  return rows;
}

Row ReferenceModel::Logits(const Rows& encoded, std::span<const int32_t> tokens) const {
  const ModelSpec& spec = checkpoint_.spec();
  const StackWeights& stack = checkpoint_.decoder();
  Rows rows = Embed(stack, tokens);
  for (const LayerWeights& layer : stack.layers) {
    AttendToSelf(stack, layer, spec.decoder, true, &rows);
    Rows normed;
    for (const Row& row : rows) normed.push_back(Normed(layer.cross_attention.norm, row));
    const Rows crossed =
        Attend(layer.cross_attention, spec.decoder, normed, encoded, nullptr, false);
    for (size_t i = 0; i < rows.size(); ++i) {
      AddTo(&rows[i], crossed[i], layer.cross_attention.norm);
      AddTo(&rows[i], FeedForward(layer.ffn, Normed(layer.ffn.norm, rows[i])), layer.ffn.norm);
    }
  }
  Row last = rows.back();
  if (spec.final_norm) last = Norm(stack.final_norm, last);
  for (double& value : last) value *= static_cast<double>(spec.head_input_scale);
  return Multiply({checkpoint_.lm_head(), stack.logits_bias}, last);
}

}  // namespace seq2seq
