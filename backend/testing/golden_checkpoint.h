// A checkpoint folder with an expected.json: what Hugging Face transformers answers for it
// (tests/data/make_checkpoints.py writes such folders).
#ifndef SEQ2SEQ_BACKEND_TESTING_GOLDEN_CHECKPOINT_H_
#define SEQ2SEQ_BACKEND_TESTING_GOLDEN_CHECKPOINT_H_

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "backend/core/status.h"
#include "backend/model/checkpoint.h"
#include "backend/testing/engine_driver.h"

namespace seq2seq {

// Requests that were decoded greedily, together, and their new tokens: behind the start token, up
// to EOS and with it.
struct GoldenCase {
  std::string name;
  std::vector<DriverRequest> requests;
  std::vector<std::vector<int32_t>> tokens;  // by request
};

struct GoldenCheckpoint {
  std::shared_ptr<const Checkpoint> checkpoint;
  std::vector<GoldenCase> cases;  // the first is the batch of "greedy"
  // Decoder inputs of the first case's first request, start token first, and the logits behind
  // each: [target.size()][vocab_size].
  std::vector<int32_t> target;
  std::vector<float> logits;
};

[[nodiscard]] Result<GoldenCheckpoint> LoadGoldenCheckpoint(const std::filesystem::path& folder);

// The folders in `parent` that have an expected.json, sorted.
std::vector<std::filesystem::path> GoldenFolders(const std::filesystem::path& parent);

// A folder's name as part of a test's: letters, digits and underscores.
std::string TestNameOf(const std::filesystem::path& folder);

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_TESTING_GOLDEN_CHECKPOINT_H_
