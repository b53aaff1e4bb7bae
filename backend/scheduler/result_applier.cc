#include "backend/scheduler/result_applier.h"

#include <algorithm>
#include <optional>
#include <string>

namespace seq2seq {
namespace {

Status CheckFitsPlan(const EndedStep& step) {
  const StepResult& result = step.result;
  const auto slot_agrees = [](const RowResult& row, const Sequence* sequence) {
    return row.slot == sequence->slot;
  };
  const auto tokens_exist = [&](const RowResult& row) {
    return row.first_token >= 0 && row.token_count >= 0 &&
           static_cast<size_t>(row.first_token) + row.token_count <=
               std::min(result.tokens.size(), result.logprobs.size());
  };
  if (std::ranges::equal(result.rows, step.rows, slot_agrees) &&
      std::ranges::all_of(result.rows, tokens_exist)) {
    return OkStatus();
  }
  return Internal("the result of step " + std::to_string(result.step) +
                  " doesn't fit the plan that was launched");
}

// Whether the request ends with this row, and how.
std::optional<FinishReason> EndOf(const RowResult& row, const Sequence& sequence) {
  if (row.stop == StopReason::kEos) return FinishReason::kEos;
  if (row.stop == StopReason::kLength ||
      sequence.generated + row.token_count >= sequence.request.max_new_tokens) {
    // The second can't come without the first; if an engine forgets it, nobody waits forever.
    return FinishReason::kLength;
  }
  return std::nullopt;
}

void ApplyRow(const StepResult& result, const RowResult& row, Sequence* sequence) {
  const bool wants_logprobs = sequence->request.sampling.return_logprobs;
  const auto logprob = [&](int32_t i) { return wants_logprobs ? result.logprobs[i] : 0.0F; };
  const std::optional<FinishReason> end = EndOf(row, *sequence);
  const int32_t last = row.first_token + row.token_count - 1;
  for (int32_t i = row.first_token; i < last; ++i) {
    sequence->sink->Append(result.tokens[i], logprob(i));
  }
  sequence->generated += row.token_count;
  if (row.token_count == 0) {
    if (end) sequence->Finish(*end);
  } else if (end) {
    sequence->FinishWith(result.tokens[last], logprob(last), *end);
  } else {
    sequence->sink->Append(result.tokens[last], logprob(last));
  }
}

}  // namespace

Result<int64_t> ApplyStep(const EndedStep& step) {
  SEQ2SEQ_RETURN_IF_ERROR(step.result.status);
  SEQ2SEQ_RETURN_IF_ERROR(CheckFitsPlan(step));
  int64_t delivered = 0;
  for (size_t i = 0; i < step.rows.size(); ++i) {
    if (step.rows[i]->ended()) continue;
    ApplyRow(step.result, step.result.rows[i], step.rows[i]);
    delivered += step.result.rows[i].token_count;
  }
  return delivered;
}

}  // namespace seq2seq
