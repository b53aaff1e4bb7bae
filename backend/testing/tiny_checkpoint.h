// Writes small, valid, random T5 checkpoints for tests, and safetensors files of any content.
#ifndef SEQ2SEQ_BACKEND_TESTING_TINY_CHECKPOINT_H_
#define SEQ2SEQ_BACKEND_TESTING_TINY_CHECKPOINT_H_

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "backend/core/dtype.h"
#include "backend/core/status.h"

namespace seq2seq {

struct TinyCheckpointOptions {
  std::string model_type = "t5";  // t5, mt5 or umt5
  int32_t vocab_size = 40;
  int32_t d_model = 16;
  int32_t d_kv = 4;
  int32_t num_heads = 3;  // heads x d_kv differs from d_model on purpose
  int32_t d_ff = 24;
  int32_t num_layers = 2;
  int32_t num_decoder_layers = 3;
  int32_t buckets = 8;
  int32_t max_distance = 20;
  std::string feed_forward_proj = "gated-gelu";
  bool tie_word_embeddings = true;  // false: with an lm_head of its own
  DType dtype = DType::kFloat32;
  uint64_t seed = 1;  // of the weights
  // Merged into the files last; null removes a key.
  nlohmann::json config = nlohmann::json::object();
  nlohmann::json generation_config = nlohmann::json::object();
};

// One tensor to write; `bytes` are its values as stored.
struct StoredTensor {
  std::string name;
  std::string dtype = "F32";  // safetensors' spelling
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;
};

// All tensors that the options ask for, in file order. Weights are uniform with a variance of
// 1 / inputs, so that activations neither vanish nor explode; norm weights lie in [0.75, 1.25].
std::vector<StoredTensor> TinyTensors(const TinyCheckpointOptions& options);

// The values of a stored F32, F16 or BF16 tensor.
std::vector<float> StoredValues(const StoredTensor& tensor);

// `padding` spaces are added to the header (the format allows any number).
[[nodiscard]] Status WriteSafetensors(const std::filesystem::path& path,
                                      const std::vector<StoredTensor>& tensors, size_t padding = 0);

[[nodiscard]] Status WriteTextFile(const std::filesystem::path& path, std::string_view text);

// Creates `directory` with config.json, generation_config.json and model.safetensors.
[[nodiscard]] Status WriteTinyCheckpoint(const std::filesystem::path& directory,
                                         const TinyCheckpointOptions& options);

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_TESTING_TINY_CHECKPOINT_H_
