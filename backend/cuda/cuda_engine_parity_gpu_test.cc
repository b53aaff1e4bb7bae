// The CUDA engine against Hugging Face transformers on checkpoint folders with an expected.json:
//
//   cuda_engine_parity_gpu_test FOLDER ...
//
// In float32 every token must be equal; in half precision all but a small share.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "backend/core/notifier.h"
#include "backend/cuda/cuda_engine.h"
#include "backend/model/checkpoint.h"
#include "backend/testing/batch_runner.h"

namespace seq2seq {
namespace {

using Ids = std::vector<int32_t>;

// New tokens of a row of expected ids: after the start token, to the first EOS.
Ids NewTokens(const nlohmann::json& row, int32_t eos) {
  Ids tokens;
  for (size_t i = 1; i < row.size(); ++i) {
    tokens.push_back(row[i].get<int32_t>());
    if (tokens.back() == eos) break;
  }
  return tokens;
}

std::vector<BatchRequest> Requests(const nlohmann::json& expected, int32_t start,
                                   int32_t max_length) {
  std::vector<BatchRequest> requests;
  for (size_t row = 0; row < expected["input_ids"].size(); ++row) {
    BatchRequest request;
    for (size_t i = 0; i < expected["input_ids"][row].size(); ++i) {
      if (expected["attention_mask"][row][i].get<int32_t>() == 0) continue;
      request.source.push_back(expected["input_ids"][row][i].get<int32_t>());
    }
    request.prefix = {start};
    request.max_new_tokens = max_length - 1;
    request.sampling.return_logprobs = true;
    requests.push_back(request);
  }
  return requests;
}

struct Count {
  size_t equal = 0;
  size_t all = 0;
};

// Compares one run with `key` of the expectations.
Status Compare(BatchRunner* runner, const nlohmann::json& expected, const char* key, int32_t start,
               int32_t eos, int32_t max_length, Count* count) {
  const std::vector<BatchRequest> requests = Requests(expected, start, max_length);
  SEQ2SEQ_ASSIGN_OR_RETURN(const std::vector<BatchOutcome> outcomes, runner->Run(requests));
  for (size_t row = 0; row < outcomes.size(); ++row) {
    const Ids truth = NewTokens(expected[key][row], eos);
    const Ids& got = outcomes[row].tokens;
    for (size_t i = 0; i < truth.size(); ++i) {
      ++count->all;
      if (i < got.size() && got[i] == truth[i]) ++count->equal;
    }
    if (got.size() != truth.size()) ++count->all;
  }
  return OkStatus();
}

// Every request alone, then one with its own output as a forced prefix: several pending tokens.
Status CompareAlone(BatchRunner* runner, const nlohmann::json& expected, int32_t start, int32_t eos,
                    int32_t max_length, Count* count) {
  std::vector<BatchRequest> requests = Requests(expected, start, max_length);
  for (size_t row = 0; row < requests.size(); ++row) {
    const Ids truth = NewTokens(expected["greedy"][row], eos);
    const size_t forced = row % 2 == 0 ? 0 : truth.size() / 2;
    BatchRequest request = requests[row];
    request.prefix.insert(request.prefix.end(), truth.begin(),
                          truth.begin() + static_cast<int64_t>(forced));
    request.max_new_tokens -= static_cast<int32_t>(forced);
    SEQ2SEQ_ASSIGN_OR_RETURN(const std::vector<BatchOutcome> outcomes, runner->Run({request}));
    const Ids rest(truth.begin() + static_cast<int64_t>(forced), truth.end());
    count->all += rest.size();
    if (outcomes[0].tokens == rest) count->equal += rest.size();
  }
  return OkStatus();
}

Result<bool> TestFolder(const std::filesystem::path& folder, DType dtype) {
  std::ifstream file(folder / "expected.json");
  const nlohmann::json expected = nlohmann::json::parse(file, nullptr, false);
  if (expected.is_discarded()) return NotFound("no readable expected.json in " + folder.string());
  SEQ2SEQ_ASSIGN_OR_RETURN(const std::shared_ptr<const Checkpoint> checkpoint,
                           Checkpoint::Load(folder));
  SEQ2SEQ_ASSIGN_OR_RETURN(std::shared_ptr<const DeviceWeights> weights,
                           DeviceWeights::Load(*checkpoint, dtype));
  Notifier notifier;
  CudaEngineOptions options;
  options.max_active_sequences = 8;
  options.max_source_tokens = 64;
  options.max_decoder_tokens = 64;
  SEQ2SEQ_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine,
                           CudaEngine::Create(std::move(weights), options, &notifier));
  BatchRunner runner(engine.get(), &notifier);
  const int32_t start = checkpoint->generation().decoder_start_token_id;
  const int32_t eos = checkpoint->generation().eos_token_ids.at(0);
  Count count;
  SEQ2SEQ_RETURN_IF_ERROR(Compare(&runner, expected, "greedy", start, eos,
                                  expected["max_length"].get<int32_t>(), &count));
  SEQ2SEQ_RETURN_IF_ERROR(Compare(&runner, expected, "greedy_max_length_6", start, eos, 6, &count));
  SEQ2SEQ_RETURN_IF_ERROR(
      CompareAlone(&runner, expected, start, eos, expected["max_length"].get<int32_t>(), &count));
  const double allowed = dtype == DType::kFloat32 ? 1.0 : 0.97;
  const bool good = static_cast<double>(count.equal) >= allowed * static_cast<double>(count.all);
  std::printf("%-8s %-12s %s: %zu of %zu tokens equal\n", good ? "ok" : "FAILED",
              folder.filename().c_str(), std::string(DTypeName(dtype)).c_str(), count.equal,
              count.all);
  std::fflush(stdout);
  return good;
}

}  // namespace
}  // namespace seq2seq

int main(int argc, char** argv) {
  using namespace seq2seq;  // NOLINT: a test's main
  bool good = argc > 1;
  for (int i = 1; i < argc; ++i) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
      const Result<bool> result = TestFolder(argv[i], dtype);
      if (!result) std::printf("FAILED %s: %s\n", argv[i], result.error().message.c_str());
      good = good && result.value_or(false);
    }
  }
  std::printf(good ? "PASSED\n" : "FAILED\n");
  return good ? 0 : 1;
}
