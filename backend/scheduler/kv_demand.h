// How many KV blocks a request can ever need.
#ifndef SEQ2SEQ_BACKEND_SCHEDULER_KV_DEMAND_H_
#define SEQ2SEQ_BACKEND_SCHEDULER_KV_DEMAND_H_

#include <cstdint>

#include "backend/core/kv_blocks.h"
#include "backend/request/request.h"

namespace seq2seq {

struct KvDemand {
  int64_t cross_blocks = 0;  // one position a source token
  int64_t self_blocks = 0;   // prefix and new tokens, less the last one: it never enters the cache
  int64_t total() const { return cross_blocks + self_blocks; }
};

inline KvDemand KvDemandOf(const Request& request, int32_t block_tokens) {
  const auto prefix = static_cast<int64_t>(request.decoder_prefix.size());
  return {
      .cross_blocks = KvBlocksFor(static_cast<int64_t>(request.source_ids.size()), block_tokens),
      .self_blocks = KvBlocksFor(prefix + request.max_new_tokens - 1, block_tokens)};
}

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_SCHEDULER_KV_DEMAND_H_
