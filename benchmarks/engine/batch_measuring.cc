#include "benchmarks/engine/batch_measuring.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "backend/core/notifier.h"
#include "backend/core/status.h"
#include "backend/testing/engine_driver.h"

namespace seq2seq {
namespace {

using Json = nlohmann::json;

constexpr double kSecondsPerMs = 1e-3;

struct Batch {
  std::vector<std::vector<int32_t>> sources;
  int32_t new_tokens = 0;
};

Result<Batch> ParseBatch(const std::string& line) {
  Batch batch;
  try {
    const Json json = Json::parse(line);
    json.at("sources").get_to(batch.sources);
    json.at("new_tokens").get_to(batch.new_tokens);
  } catch (const Json::exception& error) {
    return InvalidArgument(error.what());
  }
  if (batch.new_tokens < 1) return InvalidArgument("new_tokens is less than 1");
  if (batch.sources.empty()) return InvalidArgument("there are no sources");
  return batch;
}

// The sizes in which engines for two batches may differ.
struct Sizes {
  int32_t sequences = 0;
  int32_t source_tokens = 0;
  int32_t new_tokens = 0;

  friend bool operator==(const Sizes&, const Sizes&) = default;
};

Sizes SizesOf(const Batch& batch) {
  Sizes sizes{.sequences = static_cast<int32_t>(batch.sources.size()),
              .new_tokens = batch.new_tokens};
  for (const std::vector<int32_t>& source : batch.sources) {
    sizes.source_tokens = std::max(sizes.source_tokens, static_cast<int32_t>(source.size()));
  }
  return sizes;
}

class MeasuredEngine {
 public:
  MeasuredEngine(EngineFactory& factory, const EngineOptions& options, int32_t start_token)
      : factory_(factory), options_(options), start_token_(start_token) {}

  Result<Json> Measure(const std::string& line) {
    SEQ2SEQ_ASSIGN_OR_RETURN(const Batch batch, ParseBatch(line));
    SEQ2SEQ_RETURN_IF_ERROR(Prepare(SizesOf(batch)));
    driver_->Reset();
    SEQ2SEQ_ASSIGN_OR_RETURN(const std::vector<DriverSequence> sequences,
                             driver_->Generate(RequestsOf(batch)));
    double first_ms = 0.0;
    Json ids = Json::array();
    for (const DriverSequence& sequence : sequences) {
      SEQ2SEQ_RETURN_IF_ERROR(sequence.status);
      first_ms = std::max(first_ms, sequence.first_token_ms);
      ids.push_back(sequence.tokens);
    }
    return Json{{"seconds", driver_->times().total * kSecondsPerMs},
                {"first_token_seconds", first_ms * kSecondsPerMs},
                {"ids", std::move(ids)}};
  }

 private:
  Status Prepare(const Sizes& sizes) {
    if (engine_ != nullptr && sizes == sizes_) return OkStatus();
    if (weights_holder_ == nullptr) {
      SEQ2SEQ_ASSIGN_OR_RETURN(weights_holder_, Make({1, 1, 1}));
    }
    engine_.reset();  // its memory is free before the next one asks
    SEQ2SEQ_ASSIGN_OR_RETURN(engine_, Make(sizes));
    driver_ = std::make_unique<EngineDriver>(engine_.get(), &notifier_);
    sizes_ = sizes;
    return OkStatus();
  }

  Result<std::unique_ptr<Engine>> Make(const Sizes& sizes) {
    EngineOptions options = options_;
    options.max_active_sequences = sizes.sequences;
    options.max_source_tokens = sizes.source_tokens;
    options.max_decoder_tokens = sizes.new_tokens + 1;
    return factory_.Create(options, &notifier_);
  }

  std::vector<DriverRequest> RequestsOf(const Batch& batch) const {
    std::vector<DriverRequest> requests;
    for (const std::vector<int32_t>& source : batch.sources) {
      DriverRequest request;
      request.source = source;
      request.prefix = {start_token_};
      request.min_new_tokens = batch.new_tokens;
      request.max_new_tokens = batch.new_tokens;
      requests.push_back(std::move(request));
    }
    return requests;
  }

  EngineFactory& factory_;
  const EngineOptions options_;
  const int32_t start_token_;
  Notifier notifier_;
  std::unique_ptr<Engine> weights_holder_;  // keeps what engines share while there is no other
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<EngineDriver> driver_;
  Sizes sizes_;
};

}  // namespace

void MeasureBatches(EngineFactory& factory, const EngineOptions& options, int32_t start_token,
                    std::istream& in, std::ostream& out) {
  MeasuredEngine measured(factory, options, start_token);
  for (std::string line; std::getline(in, line);) {
    const Result<Json> answer = measured.Measure(line);
    out << (answer ? *answer : Json{{"error", answer.error().message}}).dump() << std::endl;
  }
}

}  // namespace seq2seq
