#include "backend/triton/outgoing_stream.h"

#include <exception>
#include <span>
#include <utility>

namespace seq2seq {

void OutgoingStream::Configure(const StreamSettings& settings) {
  tokens_ = std::make_unique_for_overwrite<int32_t[]>(settings.max_new_tokens);
  if (settings.return_logprobs) {
    logprobs_ = std::make_unique_for_overwrite<float[]>(settings.max_new_tokens);
  }
  settings_ = settings;
}

bool OutgoingStream::Append(int32_t token, float logprob) {
  if (state_.appended >= settings_.max_new_tokens) return false;
  tokens_[state_.appended] = token;
  if (logprobs_ != nullptr) logprobs_[state_.appended] = logprob;
  ++state_.appended;
  return true;
}

SendBatch OutgoingStream::TakeBatch() {
  SendBatch batch{.first = state_.taken,
                  .end_token = state_.appended,
                  .end = state_.end,
                  .reason = state_.reason,
                  .error = std::move(state_.error),
                  .ended_ns = state_.ended_ns};
  state_.taken = state_.appended;
  return batch;
}

Status OutgoingStream::SendTokens(const SendBatch& batch) {
  const auto count = static_cast<size_t>(batch.end_token - batch.first);
  const std::span<const int32_t> ids(tokens_.get() + batch.first, count);
  std::span<const float> logprobs;
  if (logprobs_ != nullptr) logprobs = {logprobs_.get() + batch.first, count};
  const FinalNote note{.reason = batch.reason,
                       .prompt_tokens = settings_.prompt_tokens,
                       .completion_tokens = batch.end_token,
                       .seed = settings_.seed};
  const bool final = batch.end == StreamEnd::kFinished;
  return writer_->SendTokens(ids, logprobs, settings_.outputs, final ? &note : nullptr);
}

bool OutgoingStream::Deliver(const SendBatch& batch, const Clock& clock) noexcept {
  Error error;
  if (batch.end == StreamEnd::kFailed) {
    error = batch.error;
  } else {
    Status sent;
    try {
      sent = SendTokens(batch);
    } catch (const std::exception& exception) {
      sent = std::unexpected(Error{ErrorCode::kInternal, exception.what()});
    }
    if (sent && batch.end == StreamEnd::kOpen) return false;
    if (sent) {
      Close(batch.reason == FinishReason::kTimeout ? RequestOutcome::kTimeout : RequestOutcome::kOk,
            batch.ended_ns, clock);
      return true;
    }
    error = std::move(sent).error();
  }
  writer_->SendError(error);
  const int64_t now_ns = clock.NowNs();
  const int64_t computed_ns = batch.ended_ns != 0 ? batch.ended_ns : now_ns;
  const bool late = settings_.deadline_ns != 0 && computed_ns >= settings_.deadline_ns;
  Close(OutcomeOfError(error.code, late), computed_ns, clock);
  return true;
}

void OutgoingStream::Close(RequestOutcome outcome, int64_t computed_ns, const Clock& clock) {
  writer_->Close(
      outcome,
      RequestTimes{.arrival_ns = arrival_ns_, .computed_ns = computed_ns, .end_ns = clock.NowNs()});
}

}  // namespace seq2seq
