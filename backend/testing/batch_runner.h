// Runs a list of requests through an engine, the way a scheduler would but without its rules: for
// the tests and benchmarks of engines.
#ifndef SEQ2SEQ_BACKEND_TESTING_BATCH_RUNNER_H_
#define SEQ2SEQ_BACKEND_TESTING_BATCH_RUNNER_H_

#include <chrono>
#include <cstdint>
#include <vector>

#include "backend/core/ids.h"
#include "backend/core/notifier.h"
#include "backend/core/sampling_options.h"
#include "backend/core/status.h"
#include "backend/engine/engine.h"
#include "backend/engine/step.h"

namespace seq2seq {

struct BatchRequest {
  std::vector<int32_t> source;
  std::vector<int32_t> prefix;  // decoder start token first
  int32_t min_new_tokens = 0;
  int32_t max_new_tokens = 1;
  SamplingOptions sampling;
};

struct BatchOutcome {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  float score = 0.0F;
  StopReason stop = StopReason::kNone;
  double first_token_ms = 0.0;  // since Run() began
};

// One use of Run() at a time. A request's sequence takes the slot of its index, so there are at
// most max_slots of them; blocks are handed out once and never returned.
class BatchRunner {
 public:
  // kJoin: sequences join the batch as their encodes end. kTogether: decoding starts when all are
  // encoded.
  enum class Start : uint8_t { kJoin, kTogether };

  BatchRunner(Engine* engine, Notifier* notifier, Start start = Start::kJoin)
      : engine_(engine), notifier_(notifier), start_(start) {}

  // Encodes and decodes all requests.
  [[nodiscard]] Result<std::vector<BatchOutcome>> Run(const std::vector<BatchRequest>& requests);

  // Of the last Run(): from its begin to its end, and until all were encoded, and between the ends
  // of steps with all rows.
  double total_ms() const { return total_ms_; }
  double encode_ms() const { return encode_ms_; }
  const std::vector<double>& step_ms() const { return step_ms_; }

 private:
  struct Sequence {
    std::vector<BlockId> cross_blocks;
    std::vector<BlockId> self_blocks;
    bool encoded = false;
    bool bound = false;
    bool ended = false;
    int32_t launched = 0;  // steps
  };

  double Now() const;
  Status HandOutBlocks(const std::vector<BatchRequest>& requests);
  Status StartEncode(const std::vector<BatchRequest>& requests);
  Result<bool> TakeEncoded();
  Result<bool> LaunchStep(const std::vector<BatchRequest>& requests);
  Result<bool> TakeStep(std::vector<BatchOutcome>* outcomes);

  Engine* engine_;
  Notifier* notifier_;
  Start start_;
  std::chrono::steady_clock::time_point begin_;
  std::vector<Sequence> sequences_;
  std::vector<EncodeDone> encoded_;
  StepPlan plan_;
  StepResult result_;
  size_t next_encode_ = 0;
  size_t encoded_count_ = 0;
  int32_t encodes_in_flight_ = 0;
  int32_t steps_in_flight_ = 0;
  uint64_t step_ = 0;
  size_t ended_ = 0;
  double last_step_end_ = 0.0;
  double total_ms_ = 0.0;
  double encode_ms_ = 0.0;
  std::vector<double> step_ms_;
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_TESTING_BATCH_RUNNER_H_
