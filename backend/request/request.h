// A validated request: what the scheduler needs to know, and nothing of where it came from.
#ifndef SEQ2SEQ_BACKEND_REQUEST_REQUEST_H_
#define SEQ2SEQ_BACKEND_REQUEST_REQUEST_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/core/sampling_options.h"
#include "backend/request/token_sink.h"

namespace seq2seq {

struct Request {
  std::vector<int32_t>
      source_ids;  // not empty, pads at the end removed, every id in the vocabulary
  std::vector<int32_t> decoder_prefix;  // not empty, starts with the start token
  int32_t max_new_tokens = 0;           // >= 1
  int32_t min_new_tokens = 0;           // EOS is banned until then
  SamplingOptions sampling;

  bool stream = true;                // false: one response with everything
  int64_t response_interval_ns = 0;  // least time between responses after the first
  int64_t arrival_ns = 0;            // Clock::NowNs() when the request came
  int64_t deadline_ns = 0;           // 0: none; else arrival_ns + timeout
};

// A request on its way through the scheduler, with the place its answer goes to.
struct PendingRequest {
  Request request;
  std::unique_ptr<TokenSink> sink;  // never null
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_REQUEST_REQUEST_H_
