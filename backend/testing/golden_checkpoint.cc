#include "backend/testing/golden_checkpoint.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

namespace seq2seq {
namespace {

using Ids = std::vector<int32_t>;

std::vector<float> DecodeFloats(const std::string& base64) {
  static constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : base64) {
    if (c == '=') break;
    bits = bits << 6 | static_cast<uint32_t>(kDigits.find(c));
    count += 6;
    if (count >= 8) bytes.push_back(static_cast<char>(bits >> (count -= 8) & 0xff));
  }
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

class Reader {
 public:
  explicit Reader(const GenerationConfig& generation) : generation_(generation) {}

  DriverRequest Request(Ids source, int32_t max_new_tokens) const {
    // Right-padded, as a batch of transformers is; an engine gets no pads.
    while (source.size() > 1 && source.back() == generation_.pad_token_id) source.pop_back();
    DriverRequest request;
    request.source = std::move(source);
    request.prefix = {generation_.decoder_start_token_id};
    request.max_new_tokens = max_new_tokens;
    request.sampling.return_logprobs = true;
    return request;
  }

  Ids NewTokens(const Ids& generated) const {
    const Ids& eos = generation_.eos_token_ids;
    const auto end =
        std::find_first_of(generated.begin() + 1, generated.end(), eos.begin(), eos.end());
    return {generated.begin() + 1, end == generated.end() ? end : end + 1};
  }

  GoldenCase Batch(const char* name, const nlohmann::json& sources, const nlohmann::json& generated,
                   int32_t max_new_tokens) const {
    GoldenCase batch{name, {}, {}};
    for (size_t row = 0; row < sources.size(); ++row) {
      batch.requests.push_back(Request(sources[row], max_new_tokens));
      batch.tokens.push_back(NewTokens(generated[row]));
    }
    return batch;
  }

  GoldenCase Single(const char* name, const nlohmann::json& one, int32_t max_new_tokens) const {
    GoldenCase single{name, {}, {}};
    DriverRequest& request = single.requests.emplace_back(
        Request(one.at("input_ids"), one.value("max_new_tokens", max_new_tokens)));
    request.min_new_tokens = one.value("min_new_tokens", 0);
    single.tokens.push_back(NewTokens(one.at("greedy")));
    return single;
  }

 private:
  const GenerationConfig& generation_;
};

void ReadExpectations(const nlohmann::json& expected, GoldenCheckpoint* golden) {
  const Reader reader(golden->checkpoint->generation());
  const int32_t new_tokens = expected.value("max_length", 90) - 1;
  const nlohmann::json& sources = expected.at("input_ids");
  golden->cases.push_back(reader.Batch("greedy", sources, expected.at("greedy"), new_tokens));
  if (expected.contains("greedy_max_length_6")) {
    golden->cases.push_back(
        reader.Batch("greedy_max_length_6", sources, expected.at("greedy_max_length_6"), 5));
  }
  if (expected.contains("many")) {
    const nlohmann::json& many = expected.at("many");
    golden->cases.push_back(
        reader.Batch("many", many.at("input_ids"), many.at("greedy"), new_tokens));
  }
  for (const char* name : {"early_eos", "padded", "long"}) {
    if (!expected.contains(name)) continue;
    golden->cases.push_back(reader.Single(name, expected.at(name), new_tokens));
  }
  golden->target = expected.at("tf_decoder_input_ids").at(0).get<Ids>();
  golden->logits = DecodeFloats(expected.at("tf_logits_row0_b64_f32").get<std::string>());
}

}  // namespace

Result<GoldenCheckpoint> LoadGoldenCheckpoint(const std::filesystem::path& folder) {
  GoldenCheckpoint golden;
  SEQ2SEQ_ASSIGN_OR_RETURN(golden.checkpoint, Checkpoint::Load(folder));
  std::ifstream file(folder / "expected.json");
  try {
    ReadExpectations(nlohmann::json::parse(file), &golden);
  } catch (const nlohmann::json::exception& error) {
    return InvalidArgument((folder / "expected.json").string() + ": " + error.what());
  }
  return golden;
}

std::vector<std::filesystem::path> GoldenFolders(const std::filesystem::path& parent) {
  std::vector<std::filesystem::path> folders;
  for (const auto& entry : std::filesystem::directory_iterator(parent)) {
    if (std::filesystem::exists(entry.path() / "expected.json")) folders.push_back(entry.path());
  }
  std::ranges::sort(folders);
  return folders;
}

std::string TestNameOf(const std::filesystem::path& folder) {
  std::string name = folder.filename();
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
}

}  // namespace seq2seq
