#include "backend/triton/instance_metrics.h"

#include <utility>

#include "backend/core/format.h"
#include "backend/triton/triton_log.h"

namespace seq2seq {
namespace {

std::array<MetricLabel, 3> Labels(const InstanceLabels& labels) {
  return {MetricLabel{"model", labels.model}, MetricLabel{"version", labels.version},
          MetricLabel{"instance", labels.instance}};
}

}  // namespace

InstanceMetrics::InstanceMetrics(const MetricFamilies& families, const InstanceLabels& labels,
                                 std::shared_ptr<QueueGauge> queue_gauge)
    : labels_(labels),
      queue_gauge_(std::move(queue_gauge)),
      active_(families.active_sequences.Make(Labels(labels))),
      waiting_(families.waiting_sequences.Make(Labels(labels))),
      blocks_used_(families.kv_blocks_used.Make(Labels(labels))),
      blocks_total_(families.kv_blocks_total.Make(Labels(labels))),
      generated_tokens_(families.generated_tokens.Make(Labels(labels))),
      source_tokens_(families.source_tokens.Make(Labels(labels))) {
  const std::array<MetricLabel, 3> plain = Labels(labels);
  for (size_t i = 0; i < requests_.size(); ++i) {
    const std::array<MetricLabel, 4> with_outcome = {plain[0], plain[1], plain[2],
                                                     MetricLabel{"outcome", kOutcomeNames[i]}};
    requests_[i] = families.requests.Make(with_outcome);
  }
}

void InstanceMetrics::OnGauges(const SchedulerGauges& gauges) {
  active_.Set(gauges.active_sequences);
  waiting_.Set(gauges.waiting_sequences);
  blocks_used_.Set(gauges.kv_blocks_used);
  blocks_total_.Set(gauges.kv_blocks_total);
  queue_gauge_->Update();
}

void InstanceMetrics::OnGeneratedTokens(int64_t count) {
  generated_tokens_.Increment(static_cast<double>(count));
}

void InstanceMetrics::OnSourceTokens(int64_t count) {
  source_tokens_.Increment(static_cast<double>(count));
}

void InstanceMetrics::OnEngineFailure(const Error& error) {
  LogError(
      Format("model '{}' version {}: the engine of instance '{}' failed: {}; the instance "
             "serves nothing any more until the model is loaded again",
             labels_.model, labels_.version, labels_.instance, error.message));
}

void InstanceMetrics::CountRequest(RequestOutcome outcome) {
  requests_[static_cast<size_t>(outcome)].Increment(1);
  queue_gauge_->Update();
}

}  // namespace seq2seq
