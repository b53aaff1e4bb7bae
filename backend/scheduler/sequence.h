// The state of one request that a scheduler has pulled.
#ifndef SEQ2SEQ_BACKEND_SCHEDULER_SEQUENCE_H_
#define SEQ2SEQ_BACKEND_SCHEDULER_SEQUENCE_H_

#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "backend/core/ids.h"
#include "backend/core/status.h"
#include "backend/request/request.h"

namespace seq2seq {

enum class SequenceState : uint8_t {
  kAdmitted,  // has its KV blocks
  kEncoding,  // its source is with the engine
  kEncoded,   // waits for a slot
  kRunning,   // has a slot
};

// Lives in the SequenceTable, whose thread alone touches it. Its request ends exactly once, by
// Finish(), FinishWith() or Fail(), which also lets the sink go; the rest stays while the engine
// uses it.
struct Sequence {
  SequenceState state = SequenceState::kAdmitted;
  uint64_t ticket = 0;  // unique in its scheduler; the engine's name for the encode
  Request request;
  std::unique_ptr<TokenSink> sink;  // null once the request has ended

  std::vector<BlockId> blocks;  // cross blocks, then self blocks; sized at admission
  int32_t cross_count = 0;

  int32_t encode_batch = -1;       // kEncoding only: the EncodeManager's place for its batch
  SlotId slot = -1;                // kRunning only
  int32_t generated = 0;           // new tokens delivered
  int32_t launches_in_flight = 0;  // launched steps with a row for it, not yet applied

  std::span<const BlockId> cross_blocks() const {
    return std::span(blocks).first(static_cast<size_t>(cross_count));
  }
  std::span<const BlockId> self_blocks() const {
    return std::span(blocks).subspan(static_cast<size_t>(cross_count));
  }
  bool ended() const { return sink == nullptr; }
  // The engine reads its memory or writes its blocks.
  bool in_use() const { return state == SequenceState::kEncoding || launches_in_flight > 0; }

  void Finish(FinishReason reason) {
    sink->Finish(reason);
    sink.reset();
  }
  void FinishWith(int32_t token, float logprob, FinishReason reason) {
    sink->AppendLast(token, logprob, reason);
    sink.reset();
  }
  void Fail(Error error) noexcept {
    try {
      sink->Fail(std::move(error));
    } catch (const std::exception&) {
      // A sink let go unanswered fails itself.
    }
    sink.reset();
  }
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_SCHEDULER_SEQUENCE_H_
