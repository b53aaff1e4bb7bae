// One instance's metrics.
#ifndef SEQ2SEQ_BACKEND_TRITON_INSTANCE_METRICS_H_
#define SEQ2SEQ_BACKEND_TRITON_INSTANCE_METRICS_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "backend/scheduler/scheduler_observer.h"
#include "backend/triton/metric_families.h"
#include "backend/triton/queue_gauge.h"
#include "backend/triton/request_outcome.h"

namespace seq2seq {

struct InstanceLabels {
  std::string model;
  std::string version;
  std::string instance;
};

// Shared by the instance and the requests that came through it. The scheduler's calls come from its
// thread, CountRequest() from any. The families outlive it.
class InstanceMetrics final : public SchedulerObserver {
 public:
  InstanceMetrics(const MetricFamilies& families, const InstanceLabels& labels,
                  std::shared_ptr<QueueGauge> queue_gauge);

  void OnGauges(const SchedulerGauges& gauges) override;
  void OnGeneratedTokens(int64_t count) override;
  void OnSourceTokens(int64_t count) override;
  void OnEngineFailure(const Error& error) override;  // a line in the log

  // A request that came through this instance has ended and has left the queue.
  void CountRequest(RequestOutcome outcome);

 private:
  const InstanceLabels labels_;
  std::shared_ptr<QueueGauge> queue_gauge_;
  Gauge active_;
  Gauge waiting_;
  Gauge blocks_used_;
  Gauge blocks_total_;
  Metric generated_tokens_;
  Metric source_tokens_;
  std::array<Metric, kOutcomeNames.size()> requests_;
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_TRITON_INSTANCE_METRICS_H_
