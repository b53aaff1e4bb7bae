// Damaged files of every kind: a load may fail, but must answer. Run it under asan for its full
// worth.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>

#include "backend/model/checkpoint.h"
#include "backend/testing/tiny_checkpoint.h"

namespace seq2seq {
namespace {

namespace fs = std::filesystem;

class CorruptionTest : public testing::Test {
 protected:
  CorruptionTest() : directory_(fs::path(testing::TempDir()) / "corruption_test") {
    TinyCheckpointOptions
        options;  // as small as all roles allow, so that many damages can be tried
    options.vocab_size = 6;
    options.d_model = 4;
    options.num_heads = 1;
    options.d_ff = 4;
    options.num_layers = 1;
    options.num_decoder_layers = 1;
    EXPECT_TRUE(WriteTinyCheckpoint(directory_, options));
    EXPECT_TRUE(Checkpoint::Load(directory_));
  }
  ~CorruptionTest() override { fs::remove_all(directory_); }

  std::string Read(const char* name) const {
    std::ifstream file(directory_ / name, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }

  // True if the checkpoint with this content loads; then its weights are read as well.
  bool Loads(const char* name, const std::string& content) {
    EXPECT_TRUE(WriteTextFile(directory_ / name, content));
    const auto checkpoint = Checkpoint::Load(directory_);
    if (!checkpoint) {
      EXPECT_FALSE(checkpoint.error().message.empty());
      EXPECT_LT(checkpoint.error().message.size(), 2000U);
      return false;
    }
    Touch((*checkpoint)->encoder().embedding);
    Touch((*checkpoint)->lm_head());
    for (const StackWeights* stack : {&(*checkpoint)->encoder(), &(*checkpoint)->decoder()}) {
      Touch(stack->final_norm.weight);
      for (const LayerWeights& layer : stack->layers) {
        Touch(layer.self_attention.q.weight);
        Touch(layer.cross_attention.o.weight);
        Touch(layer.ffn.down.weight);
        Touch(layer.position_bias);
      }
    }
    return true;
  }

  void Touch(const TensorView& view) {
    if (!view.present()) return;
    const auto bytes = static_cast<size_t>(view.elements()) * DTypeBytes(view.dtype);
    for (size_t at = 0; at < bytes; ++at) sum_ += static_cast<uint64_t>(view.data[at]);
  }

  // Where the data of model.safetensors begins.
  static size_t DataBegin(const std::string& content) {
    uint64_t length = 0;
    std::memcpy(&length, content.data(), sizeof(length));
    return sizeof(length) + length;
  }

  fs::path directory_;
  uint64_t sum_ = 0;
};

TEST_F(CorruptionTest, TruncatedWeightsNeverLoad) {
  const std::string whole = Read("model.safetensors");
  for (size_t size = 0; size < whole.size(); size += size < 64 ? 1 : 23) {
    EXPECT_FALSE(Loads("model.safetensors", whole.substr(0, size))) << size;
  }
  EXPECT_FALSE(Loads("model.safetensors", whole.substr(0, whole.size() - 1)));
  EXPECT_FALSE(Loads("model.safetensors", whole + '\0'));
  EXPECT_TRUE(Loads("model.safetensors", whole));
}

TEST_F(CorruptionTest, TruncatedConfigsNeverLoad) {
  for (const char* name : {"config.json", "generation_config.json"}) {
    const std::string whole = Read(name);
    for (size_t size = 0; size < whole.size(); size += 3) {
      EXPECT_FALSE(Loads(name, whole.substr(0, size))) << name << " " << size;
    }
    EXPECT_TRUE(Loads(name, whole));
  }
}

TEST_F(CorruptionTest, FlippedHeaderBytesAreAnswered) {
  const std::string whole = Read("model.safetensors");
  const size_t data = DataBegin(whole);
  int refused = 0;
  int tried = 0;
  for (size_t at = 0; at < data; at += at < 16 ? 1 : 3) {
    for (const unsigned flip : {0x01U, 0x10U, 0x80U}) {
      std::string damaged = whole;
      damaged[at] = static_cast<char>(static_cast<unsigned char>(damaged[at]) ^ flip);
      refused += Loads("model.safetensors", damaged) ? 0 : 1;
      ++tried;
    }
  }
  // What still loads are changes of the free metadata.
  EXPECT_GT(refused, tried * 9 / 10);
}

TEST_F(CorruptionTest, FlippedConfigBytesAreAnswered) {
  for (const char* name : {"config.json", "generation_config.json"}) {
    const std::string whole = Read(name);
    int refused = 0;
    for (size_t at = 0; at < whole.size(); at += 2) {
      for (const unsigned flip : {0x01U, 0x04U, 0x80U}) {
        std::string damaged = whole;
        damaged[at] = static_cast<char>(static_cast<unsigned char>(damaged[at]) ^ flip);
        refused += Loads(name, damaged) ? 0 : 1;
      }
    }
    EXPECT_GT(refused, 50) << name;
    EXPECT_TRUE(Loads(name, whole));
  }
}

TEST_F(CorruptionTest, RandomDigitsInTheHeaderAreAnswered) {
  const std::string whole = Read("model.safetensors");
  const size_t data = DataBegin(whole);
  std::mt19937 random(1);
  int refused = 0;
  constexpr int kTries = 300;
  for (int round = 0; round < kTries; ++round) {
    std::string damaged = whole;
    for (int changes = 0; changes < 3;) {
      const size_t at = 8 + random() % (data - 8);
      if (damaged[at] < '0' || damaged[at] > '9') continue;
      damaged[at] = "0123456789-e."[random() % 13];
      ++changes;
    }
    refused += damaged != whole && !Loads("model.safetensors", damaged) ? 1 : 0;
  }
  EXPECT_GT(refused, kTries * 8 / 10);
}

TEST_F(CorruptionTest, GarbageIsAnswered) {
  std::mt19937 random(2);
  for (size_t size = 0; size < 300; ++size) {
    std::string garbage;
    while (garbage.size() < size) garbage += static_cast<char>(random());
    EXPECT_FALSE(Loads("model.safetensors", garbage));
    if (size >= 8) {
      const uint64_t honest_length = size - 8;
      std::memcpy(garbage.data(), &honest_length, sizeof(honest_length));
      EXPECT_FALSE(Loads("model.safetensors", garbage));
    }
  }
}

// Sizes that would overflow or exhaust memory if anything were allocated on their word.
TEST_F(CorruptionTest, LyingSizesAreRefused) {
  for (const char* key :
       {"vocab_size", "d_model", "d_ff", "d_kv", "num_heads", "num_layers", "num_decoder_layers"}) {
    for (const int64_t value : {int64_t{1000}, int64_t{1} << 20, int64_t{1} << 31, int64_t{1} << 32,
                                int64_t{1} << 62, INT64_MAX, INT64_MIN}) {
      TinyCheckpointOptions options;
      options.config[key] = value;
      ASSERT_TRUE(WriteTinyCheckpoint(directory_, options));
      EXPECT_FALSE(Checkpoint::Load(directory_)) << key << " " << value;
    }
  }
}

}  // namespace
}  // namespace seq2seq
