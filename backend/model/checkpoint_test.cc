#include "backend/model/checkpoint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "backend/testing/tiny_checkpoint.h"

namespace seq2seq {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Tensors = std::vector<StoredTensor>;

class CheckpointTest : public testing::Test {
 protected:
  CheckpointTest() : directory_(fs::path(testing::TempDir()) / "checkpoint_test") {
    fs::remove_all(directory_);
  }
  ~CheckpointTest() override { fs::remove_all(directory_); }

  fs::path weights_path() const { return directory_ / "model.safetensors"; }

  // Writes the checkpoint that the options describe, but with these tensors.
  void Write(const TinyCheckpointOptions& options, const Tensors& tensors) {
    ASSERT_TRUE(WriteTinyCheckpoint(directory_, options));
    ASSERT_TRUE(WriteSafetensors(weights_path(), tensors));
  }

  std::string ErrorOf(const TinyCheckpointOptions& options, const Tensors& tensors) {
    Write(options, tensors);
    return LoadError();
  }

  std::string LoadError() {
    const auto checkpoint = Checkpoint::Load(directory_);
    return checkpoint ? "accepted" : checkpoint.error().message;
  }

  fs::path directory_;
};

StoredTensor& Named(Tensors& tensors, std::string_view name) {
  const auto found = std::ranges::find(tensors, name, &StoredTensor::name);
  EXPECT_NE(found, tensors.end()) << name;
  return *found;
}

StoredTensor Renamed(StoredTensor tensor, std::string name) {
  tensor.name = std::move(name);
  return tensor;
}

// Which stored tensors the roles of a loaded checkpoint show, and whether each shows the right one.
class RoleCheck {
 public:
  explicit RoleCheck(const Tensors& tensors) {
    for (const StoredTensor& tensor : tensors) tensors_.emplace(tensor.name, &tensor);
  }

  void Is(const TensorView& view, const std::string& name) {
    ASSERT_TRUE(view.present()) << name;
    ASSERT_TRUE(tensors_.contains(name)) << name;
    const StoredTensor& tensor = *tensors_.at(name);
    ASSERT_EQ(view.shape, tensor.shape) << name;
    EXPECT_EQ(std::memcmp(view.data, tensor.bytes.data(), tensor.bytes.size()), 0) << name;
    seen_.insert_or_assign(name, true);
  }

  void Attention(const AttentionWeights& attention, const std::string& layer,
                 const std::string& kind) {
    Is(attention.norm.weight, layer + ".layer_norm.weight");
    Is(attention.q.weight, layer + "." + kind + ".q.weight");
    Is(attention.k.weight, layer + "." + kind + ".k.weight");
    Is(attention.v.weight, layer + "." + kind + ".v.weight");
    Is(attention.o.weight, layer + "." + kind + ".o.weight");
    EXPECT_FALSE(attention.q.bias.present());
  }

  void Stack(const StackWeights& stack, const std::string& side, bool gated, bool every_table) {
    const bool is_decoder = side == "decoder";
    for (size_t index = 0; index < stack.layers.size(); ++index) {
      const LayerWeights& layer = stack.layers[index];
      const std::string block = side + ".block." + std::to_string(index) + ".layer.";
      Attention(layer.self_attention, block + "0", "SelfAttention");
      if (index == 0 || every_table) {
        Is(layer.position_bias, block + "0.SelfAttention.relative_attention_bias.weight");
      } else {
        EXPECT_FALSE(layer.position_bias.present());
      }
      if (is_decoder) Attention(layer.cross_attention, block + "1", "EncDecAttention");
      EXPECT_EQ(layer.cross_attention.q.weight.present(), is_decoder);
      const std::string ffn = block + (is_decoder ? "2" : "1");
      Is(layer.ffn.norm.weight, ffn + ".layer_norm.weight");
      EXPECT_EQ(layer.ffn.gate.weight.present(), gated);
      if (gated) Is(layer.ffn.gate.weight, ffn + ".DenseReluDense.wi_0.weight");
      Is(layer.ffn.up.weight,
         ffn + (gated ? ".DenseReluDense.wi_1.weight" : ".DenseReluDense.wi.weight"));
      Is(layer.ffn.down.weight, ffn + ".DenseReluDense.wo.weight");
    }
    Is(stack.final_norm.weight, side + ".final_layer_norm.weight");
    Is(stack.embedding, "shared.weight");
  }

  size_t seen() const { return seen_.size(); }

 private:
  std::map<std::string, const StoredTensor*> tensors_;
  std::map<std::string, bool> seen_;
};

TEST_F(CheckpointTest, GivesEveryTensorItsRole) {
  for (const char* type : {"t5", "mt5", "umt5"}) {
    for (const char* projection : {"relu", "gated-gelu"}) {
      for (const bool tied : {true, false}) {
        TinyCheckpointOptions options;
        options.model_type = type;
        options.feed_forward_proj = projection;
        options.tie_word_embeddings = tied;
        options.dtype = tied ? DType::kFloat16 : DType::kFloat32;
        ASSERT_TRUE(WriteTinyCheckpoint(directory_, options));
        const auto loaded = Checkpoint::Load(directory_);
        ASSERT_TRUE(loaded) << loaded.error().message;
        const Checkpoint& checkpoint = **loaded;
        const Tensors tensors = TinyTensors(options);
        RoleCheck check(tensors);
        const bool gated = options.feed_forward_proj != "relu";
        const bool every_table = options.model_type == "umt5";
        ASSERT_EQ(checkpoint.encoder().layers.size(), 2U);
        ASSERT_EQ(checkpoint.decoder().layers.size(), 3U);
        check.Stack(checkpoint.encoder(), "encoder", gated, every_table);
        check.Stack(checkpoint.decoder(), "decoder", gated, every_table);
        check.Is(checkpoint.lm_head(), tied ? "shared.weight" : "lm_head.weight");
        EXPECT_EQ(check.seen(), tensors.size());
        EXPECT_EQ(checkpoint.spec().tied_head, tied);
        EXPECT_EQ(checkpoint.generation().eos_token_ids, std::vector<int32_t>{1});
      }
    }
  }
}

TEST_F(CheckpointTest, EachMissingTensorIsNamed) {
  TinyCheckpointOptions options;
  options.tie_word_embeddings = false;
  const Tensors tensors = TinyTensors(options);
  for (size_t index = 0; index < tensors.size(); ++index) {
    Tensors fewer = tensors;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(index));
    Write(options, fewer);
    const auto checkpoint = Checkpoint::Load(directory_);
    ASSERT_FALSE(checkpoint);
    EXPECT_EQ(checkpoint.error().code, ErrorCode::kNotFound);
    const std::string start =
        weights_path().string() + ": tensor '" + tensors[index].name + "' with shape [";
    EXPECT_TRUE(checkpoint.error().message.starts_with(start)) << checkpoint.error().message;
  }
}

TEST_F(CheckpointTest, EachWrongShapeIsNamed) {
  TinyCheckpointOptions options;
  options.tie_word_embeddings = false;
  const Tensors tensors = TinyTensors(options);
  for (const StoredTensor& tensor : tensors) {
    Tensors changed = tensors;
    StoredTensor& wrong = Named(changed, tensor.name);
    wrong.shape.front() += 1;
    int64_t row_bytes = 4;
    for (size_t axis = 1; axis < wrong.shape.size(); ++axis) row_bytes *= wrong.shape[axis];
    wrong.bytes.resize(wrong.bytes.size() + static_cast<size_t>(row_bytes));
    const std::string message = ErrorOf(options, changed);
    const std::string start = weights_path().string() + ": tensor '" + tensor.name +
                              "' has shape [" + std::to_string(wrong.shape.front());
    EXPECT_TRUE(message.starts_with(start)) << message;
    EXPECT_NE(message.find("; config.json asks for ["), std::string::npos) << message;
  }
}

TEST_F(CheckpointTest, TransposedWeightsAreRefused) {
  const TinyCheckpointOptions options;
  Tensors tensors = TinyTensors(options);
  std::ranges::swap(Named(tensors, "encoder.block.0.layer.1.DenseReluDense.wo.weight").shape[0],
                    Named(tensors, "encoder.block.0.layer.1.DenseReluDense.wo.weight").shape[1]);
  EXPECT_EQ(ErrorOf(options, tensors),
            weights_path().string() +
                ": tensor 'encoder.block.0.layer.1.DenseReluDense.wo.weight' has shape [24, 16]; "
                "config.json asks for [16, 24]");
}

TEST_F(CheckpointTest, SurplusTensorsAreNamed) {
  const TinyCheckpointOptions options;
  Tensors tensors = TinyTensors(options);
  tensors.push_back(Renamed(tensors.back(), "encoder.block.2.layer.0.layer_norm.weight"));
  EXPECT_EQ(ErrorOf(options, tensors),
            weights_path().string() +
                ": tensor 'encoder.block.2.layer.0.layer_norm.weight' has no "
                "place in the model that config.json describes");
}

TEST_F(CheckpointTest, TheOldCrossAttentionTableIsIgnoredWhereTransformersIgnoresIt) {
  constexpr const char* kName =
      "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight";
  for (const char* type : {"t5", "mt5", "umt5"}) {
    TinyCheckpointOptions options;
    options.model_type = type;
    Tensors tensors = TinyTensors(options);
    tensors.push_back(Renamed(tensors.back(), kName));
    const std::string message = ErrorOf(options, tensors);
    EXPECT_EQ(message == "accepted", options.model_type != "umt5") << message;
  }
}

TEST_F(CheckpointTest, EqualCopiesOfTheEmbeddingPass) {
  const TinyCheckpointOptions options;
  for (const char* name :
       {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight"}) {
    Tensors tensors = TinyTensors(options);
    tensors.push_back(Renamed(Named(tensors, "shared.weight"), name));
    EXPECT_EQ(ErrorOf(options, tensors), "accepted");
    tensors.back().bytes.back() ^= std::byte{1};
    EXPECT_EQ(ErrorOf(options, tensors),
              weights_path().string() + ": tensor '" + name + "' differs from 'shared.weight' in " +
                  weights_path().string() + "; weights that are tied must be equal");
  }
}

TEST_F(CheckpointTest, TheEmbeddingIsFoundUnderEachOfItsNames) {
  const TinyCheckpointOptions options;
  const Tensors original = TinyTensors(options);
  for (const char* name :
       {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight"}) {
    Tensors tensors = original;
    Named(tensors, "shared.weight").name = name;
    Write(options, tensors);
    const auto checkpoint = Checkpoint::Load(directory_);
    ASSERT_TRUE(checkpoint) << checkpoint.error().message;
    RoleCheck check(original);
    check.Is((*checkpoint)->encoder().embedding, "shared.weight");
    check.Is((*checkpoint)->decoder().embedding, "shared.weight");
    check.Is((*checkpoint)->lm_head(), "shared.weight");
  }
}

// transformers 5 saves tie_word_embeddings: true for such models as well.
TEST_F(CheckpointTest, AnUnscaledHeadMayDifferAlthoughTheFileSaysTied) {
  TinyCheckpointOptions options;
  options.tie_word_embeddings = false;
  const Tensors tensors = TinyTensors(options);
  options.config = {{"tie_word_embeddings", true}, {"scale_decoder_outputs", false}};
  EXPECT_EQ(ErrorOf(options, tensors), "accepted");
  options.config = {{"tie_word_embeddings", true}};
  EXPECT_NE(ErrorOf(options, tensors).find("must be equal"), std::string::npos);
}

TEST_F(CheckpointTest, OtherDtypesAreRefused) {
  const TinyCheckpointOptions options;
  Tensors tensors = TinyTensors(options);
  Named(tensors, "decoder.final_layer_norm.weight").dtype = "I32";
  EXPECT_EQ(ErrorOf(options, tensors),
            weights_path().string() +
                ": tensor 'decoder.final_layer_norm.weight': dtype is \"I32\"; "
                "F32, F16 or BF16 is supported");
}

class ShardTest : public CheckpointTest {
 protected:
  ShardTest() {
    EXPECT_TRUE(WriteTinyCheckpoint(directory_, {}));
    fs::remove(weights_path());
    const Tensors tensors = TinyTensors({});
    const auto middle = tensors.begin() + static_cast<std::ptrdiff_t>(tensors.size() / 2);
    first_.assign(tensors.begin(), middle);
    second_.assign(middle, tensors.end());
    for (const StoredTensor& tensor : first_) map_[tensor.name] = "a.safetensors";
    for (const StoredTensor& tensor : second_) map_[tensor.name] = "b.safetensors";
  }

  std::string ErrorOfShards() {
    EXPECT_TRUE(WriteSafetensors(directory_ / "a.safetensors", first_));
    EXPECT_TRUE(WriteSafetensors(directory_ / "b.safetensors", second_));
    EXPECT_TRUE(WriteTextFile(index_path(), Json{{"weight_map", map_}}.dump()));
    return LoadError();
  }

  fs::path index_path() const { return directory_ / "model.safetensors.index.json"; }
  std::string Path(const char* name) const { return (directory_ / name).string(); }

  Tensors first_;
  Tensors second_;
  Json map_ = Json::object();
};

TEST_F(ShardTest, ShardsAreRead) {
  EXPECT_EQ(ErrorOfShards(), "accepted");
  const auto checkpoint = Checkpoint::Load(directory_);
  ASSERT_TRUE(checkpoint);
  const Tensors tensors = TinyTensors({});
  RoleCheck check(tensors);
  check.Stack((*checkpoint)->encoder(), "encoder", true, false);
  check.Stack((*checkpoint)->decoder(), "decoder", true, false);
}

TEST_F(ShardTest, AMissingShardIsNamed) {
  ErrorOfShards();
  fs::remove(directory_ / "b.safetensors");
  EXPECT_EQ(LoadError(), Path("b.safetensors") + ": cannot open: No such file or directory");
}

TEST_F(ShardTest, IndexAndShardsMustAgree) {
  const std::string name = second_.front().name;
  map_[name] = "a.safetensors";
  EXPECT_EQ(ErrorOfShards(), index_path().string() + ": weight_map: tensor '" + name +
                                 "' is said to lie in " + Path("a.safetensors") + ", but lies in " +
                                 Path("b.safetensors"));
  map_.erase(name);
  EXPECT_EQ(ErrorOfShards(), Path("b.safetensors") + ": tensor '" + name +
                                 "' is not in the weight_map of " + index_path().string());
  map_[name] = "b.safetensors";
  map_["ghost.weight"] = "b.safetensors";
  EXPECT_EQ(ErrorOfShards(), Path("b.safetensors") + ": tensor 'ghost.weight' is missing; " +
                                 index_path().string() + " says that it lies here");
}

TEST_F(ShardTest, ATensorInTwoShardsIsAnError) {
  first_.push_back(second_.front());
  EXPECT_EQ(ErrorOfShards(), Path("b.safetensors") + ": tensor '" + second_.front().name +
                                 "' lies in " + Path("a.safetensors") +
                                 " too; one place is allowed");
}

TEST_F(ShardTest, ShardsLieInTheSameDirectory) {
  const std::string name = second_.front().name;
  for (const Json& file : {Json("../b.safetensors"), Json("/etc/passwd"), Json(".."), Json(""),
                           Json(3), Json(std::string("b.safetensors\0x", 15))}) {
    map_[name] = file;
    EXPECT_EQ(ErrorOfShards(), index_path().string() + ": weight_map: tensor '" + name +
                                   "' lies in " + file.dump() +
                                   "; the name of a file in the same directory is needed");
  }
}

TEST_F(ShardTest, AnIndexNeedsAWeightMap) {
  for (const char* text : {"{}", R"({"weight_map": []})", R"({"weight_map": {}})"}) {
    ASSERT_TRUE(WriteTextFile(index_path(), text));
    EXPECT_NE(LoadError().find("an object of tensor and file names is needed"), std::string::npos);
  }
  fs::remove(index_path());
  EXPECT_EQ(LoadError(), directory_.string() +
                             ": has no weights; model.safetensors or model.safetensors.index.json "
                             "is needed");
}

TEST_F(ShardTest, ALinkThatLeadsNowhereIsNamed) {
  fs::create_symlink(directory_ / "gone", directory_ / "model.safetensors");
  EXPECT_EQ(LoadError(), (directory_ / "model.safetensors").string() +
                             ": cannot open: No such file or directory");
}

}  // namespace
}  // namespace seq2seq
