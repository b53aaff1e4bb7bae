#include "backend/testing/tiny_checkpoint.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "backend/core/format.h"
#include "backend/testing/random_weights.h"

namespace seq2seq {
namespace {

float FromHalf(uint16_t half) {
  const uint32_t exponent = half >> 10 & 0x1FU;
  const float magnitude = std::ldexp(static_cast<float>((half & 0x3FFU) + (exponent ? 0x400U : 0U)),
                                     static_cast<int>(exponent ? exponent : 1U) - 25);
  return half & 0x8000U ? -magnitude : magnitude;
}

std::string StoredName(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "F32";
    case DType::kFloat16:
      return "F16";
    case DType::kBFloat16:
      return "BF16";
  }
  return "";
}

class TensorMaker {
 public:
  explicit TensorMaker(const TinyCheckpointOptions& options)
      : options_(options), source_(options.seed) {}

  std::vector<StoredTensor> Make() {
    Matrix("shared.weight", options_.vocab_size, options_.d_model, 1.0F);
    Stack("encoder", options_.num_layers, false);
    Stack("decoder", options_.num_decoder_layers, true);
    if (!options_.tie_word_embeddings) Linear("lm_head", options_.vocab_size, options_.d_model);
    return std::move(tensors_);
  }

 private:
  void Add(std::string name, std::vector<int64_t> shape, float center, float spread) {
    StoredTensor tensor{std::move(name), StoredName(options_.dtype), std::move(shape), {}};
    int64_t count = 1;
    for (const int64_t extent : tensor.shape) count *= extent;
    for (int64_t index = 0; index < count; ++index) {
      AppendStored(center + spread * source_.Next(), options_.dtype, &tensor.bytes);
    }
    tensors_.push_back(std::move(tensor));
  }

  void Matrix(std::string name, int64_t rows, int64_t columns, float spread) {
    Add(std::move(name), {rows, columns}, 0.0F, spread);
  }
  void Linear(const std::string& name, int64_t out, int64_t in) {
    // A uniform number in [-1, 1) has variance 1/3.
    Matrix(name + ".weight", out, in, std::sqrt(3.0F / static_cast<float>(in)));
  }
  void Norm(const std::string& name) { Add(name + ".weight", {options_.d_model}, 1.0F, 0.25F); }

  void Attention(const std::string& layer, const std::string& kind) {
    const int64_t inner = int64_t{options_.num_heads} * options_.d_kv;
    Norm(layer + ".layer_norm");
    for (const char* part : {".q", ".k", ".v"}) {
      Linear(layer + "." + kind + part, inner, options_.d_model);
    }
    Linear(layer + "." + kind + ".o", options_.d_model, inner);
  }

  void FeedForward(const std::string& layer) {
    const bool gated = options_.feed_forward_proj.starts_with("gated-");
    const std::string dense = layer + ".DenseReluDense.";
    Norm(layer + ".layer_norm");
    Linear(dense + (gated ? "wi_0" : "wi"), options_.d_ff, options_.d_model);
    if (gated) Linear(dense + "wi_1", options_.d_ff, options_.d_model);
    Linear(dense + "wo", options_.d_model, options_.d_ff);
  }

  void Stack(const std::string& side, int32_t layers, bool is_decoder) {
    for (int32_t index = 0; index < layers; ++index) {
      const std::string block = Format("{}.block.{}.layer.", side, index);
      Attention(block + "0", "SelfAttention");
      if (index == 0 || options_.model_type == "umt5") {
        Matrix(block + "0.SelfAttention.relative_attention_bias.weight", options_.buckets,
               options_.num_heads, 1.0F);
      }
      if (is_decoder) Attention(block + "1", "EncDecAttention");
      FeedForward(block + (is_decoder ? "2" : "1"));
    }
    Norm(side + ".final_layer_norm");
  }

  const TinyCheckpointOptions& options_;
  WeightSource source_;
  std::vector<StoredTensor> tensors_;
};

nlohmann::json ConfigJson(const TinyCheckpointOptions& options) {
  nlohmann::json config = {
      {"model_type", options.model_type},
      {"vocab_size", options.vocab_size},
      {"d_model", options.d_model},
      {"d_kv", options.d_kv},
      {"num_heads", options.num_heads},
      {"d_ff", options.d_ff},
      {"num_layers", options.num_layers},
      {"num_decoder_layers", options.num_decoder_layers},
      {"relative_attention_num_buckets", options.buckets},
      {"relative_attention_max_distance", options.max_distance},
      {"feed_forward_proj", options.feed_forward_proj},
      {"layer_norm_epsilon", 1e-6},
      {"tie_word_embeddings", options.tie_word_embeddings},
      {"is_encoder_decoder", true},
      {"pad_token_id", 0},
      {"eos_token_id", 1},
      {"decoder_start_token_id", 0},
  };
  config.merge_patch(options.config);
  return config;
}

}  // namespace

std::vector<StoredTensor> TinyTensors(const TinyCheckpointOptions& options) {
  return TensorMaker(options).Make();
}

std::vector<float> StoredValues(const StoredTensor& tensor) {
  const size_t width = tensor.dtype == "F32" ? 4 : 2;
  std::vector<float> values;
  for (size_t at = 0; at + width <= tensor.bytes.size(); at += width) {
    uint32_t bits = 0;
    std::memcpy(&bits, tensor.bytes.data() + at, width);
    if (tensor.dtype == "F16") {
      values.push_back(FromHalf(static_cast<uint16_t>(bits)));
    } else {
      values.push_back(std::bit_cast<float>(tensor.dtype == "BF16" ? bits << 16 : bits));
    }
  }
  return values;
}

Status WriteSafetensors(const std::filesystem::path& path, const std::vector<StoredTensor>& tensors,
                        size_t padding) {
  nlohmann::json header = {{"__metadata__", {{"format", "pt"}}}};
  size_t end = 0;
  for (const StoredTensor& tensor : tensors) {
    const size_t begin = end;
    end += tensor.bytes.size();
    header[tensor.name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}};
  }
  std::string text = header.dump();
  text.append(padding, ' ');
  const uint64_t length = text.size();
  std::string file(reinterpret_cast<const char*>(&length), sizeof(length));
  file += text;
  for (const StoredTensor& tensor : tensors) {
    file.append(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
  }
  return WriteTextFile(path, file);
}

Status WriteTextFile(const std::filesystem::path& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.close();
  if (!file) return Internal(Format("{}: cannot write", path.string()));
  return OkStatus();
}

Status WriteTinyCheckpoint(const std::filesystem::path& directory,
                           const TinyCheckpointOptions& options) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) return Internal(Format("{}: {}", directory.string(), error.message()));
  nlohmann::json generation = {
      {"decoder_start_token_id", 0}, {"eos_token_id", 1}, {"pad_token_id", 0}};
  generation.merge_patch(options.generation_config);
  SEQ2SEQ_RETURN_IF_ERROR(WriteTextFile(directory / "config.json", ConfigJson(options).dump(2)));
  SEQ2SEQ_RETURN_IF_ERROR(WriteTextFile(directory / "generation_config.json", generation.dump(2)));
  return WriteSafetensors(directory / "model.safetensors", TinyTensors(options));
}

}  // namespace seq2seq
