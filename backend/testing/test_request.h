// Makes requests for tests of queue and scheduler.
#ifndef SEQ2SEQ_BACKEND_TESTING_TEST_REQUEST_H_
#define SEQ2SEQ_BACKEND_TESTING_TEST_REQUEST_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/request/request.h"
#include "backend/testing/fake_tokens.h"
#include "backend/testing/recording_sink.h"

namespace seq2seq {

// What a test wants to say about a request; the rest follows.
struct TestRequestSpec {
  int32_t first_id = 10;  // source ids count up from here; above the fake engine's EOS, 1
  int32_t source_tokens = 5;
  int32_t prefix_tokens = 1;
  int32_t max_new_tokens = 4;
  int32_t min_new_tokens = 0;
  bool return_logprobs = false;
  int64_t arrival_ns = 0;
  int64_t timeout_ns = 0;  // 0: none
};

// A request and the record of its sink.
struct TestRequest {
  explicit TestRequest(const TestRequestSpec& spec = {})
      : record(std::make_shared<SinkRecord>()), pending(std::make_unique<PendingRequest>()) {
    for (int32_t i = 0; i < spec.source_tokens; ++i) source_ids.push_back(spec.first_id + i);
    Request& request = pending->request;
    request.source_ids = source_ids;
    request.decoder_prefix.assign(static_cast<size_t>(spec.prefix_tokens), 0);
    request.max_new_tokens = spec.max_new_tokens;
    request.min_new_tokens = spec.min_new_tokens;
    request.sampling.return_logprobs = spec.return_logprobs;
    request.arrival_ns = spec.arrival_ns;
    request.deadline_ns = spec.timeout_ns == 0 ? 0 : spec.arrival_ns + spec.timeout_ns;
    pending->sink = std::make_unique<RecordingSink>(record);
    this->spec = spec;
  }

  // What the fake engine makes of it.
  std::vector<int32_t> Output(const FakeTokenRule& rule) const {
    return FakeOutput(rule, source_ids, spec.min_new_tokens, spec.max_new_tokens);
  }

  TestRequestSpec spec;
  std::vector<int32_t> source_ids;
  std::shared_ptr<SinkRecord> record;
  std::unique_ptr<PendingRequest> pending;  // moves into the queue
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_TESTING_TEST_REQUEST_H_
