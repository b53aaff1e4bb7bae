#include "backend/triton/instance_metrics.h"

#include <utility>

namespace seq2seq {

InstanceMetrics::InstanceMetrics(const MetricFamilies& families, const InstanceLabels& labels,
                                 std::shared_ptr<QueueGauge> queue_gauge)
    : queue_gauge_(std::move(queue_gauge)) {
  const std::array<MetricLabel, 3> plain = {MetricLabel{"model", labels.model},
                                            MetricLabel{"version", labels.version},
                                            MetricLabel{"instance", labels.instance}};
  active_ = families.active_sequences.Make(plain);
  waiting_ = families.waiting_sequences.Make(plain);
  blocks_used_ = families.kv_blocks_used.Make(plain);
  blocks_total_ = families.kv_blocks_total.Make(plain);
  generated_tokens_ = families.generated_tokens.Make(plain);
  source_tokens_ = families.source_tokens.Make(plain);
  for (size_t i = 0; i < requests_.size(); ++i) {
    const std::array<MetricLabel, 4> with_outcome = {plain[0], plain[1], plain[2],
                                                     MetricLabel{"outcome", kOutcomeNames[i]}};
    requests_[i] = families.requests.Make(with_outcome);
  }
}

void InstanceMetrics::OnGauges(const SchedulerGauges& gauges) {
  const auto show = [](Metric& metric, int32_t before, int32_t now) {
    if (before != now) metric.Set(now);
  };
  show(active_, shown_.active_sequences, gauges.active_sequences);
  show(waiting_, shown_.waiting_sequences, gauges.waiting_sequences);
  show(blocks_used_, shown_.kv_blocks_used, gauges.kv_blocks_used);
  show(blocks_total_, shown_.kv_blocks_total, gauges.kv_blocks_total);
  shown_ = gauges;
  queue_gauge_->Update();
}

void InstanceMetrics::OnGeneratedTokens(int64_t count) {
  generated_tokens_.Increment(static_cast<double>(count));
}

void InstanceMetrics::OnSourceTokens(int64_t count) {
  source_tokens_.Increment(static_cast<double>(count));
}

void InstanceMetrics::CountRequest(RequestOutcome outcome) {
  requests_[static_cast<size_t>(outcome)].Increment(1);
  queue_gauge_->Update();
}

}  // namespace seq2seq
