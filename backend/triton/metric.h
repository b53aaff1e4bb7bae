// Families and single metrics of the server's /metrics page.
#ifndef SEQ2SEQ_BACKEND_TRITON_METRIC_H_
#define SEQ2SEQ_BACKEND_TRITON_METRIC_H_

#include <span>
#include <string>
#include <utility>

#include "backend/triton/triton_handles.h"

namespace seq2seq {

struct MetricLabel {
  const char* name;
  std::string value;
};

// One time series, a counter or what Gauge makes of it. Safe from any thread. Metrics are no reason
// to fail: one that the server refused is empty, and everything done to it does nothing.
class Metric {
 public:
  Metric() = default;
  explicit Metric(MetricHandle handle) : handle_(std::move(handle)) {}

  void Increment(double by);

 private:
  MetricHandle handle_;
};

// A share of a gauge. The server has one time series for all metrics of the same labels, and a
// model that is loaded again while its last load still serves has the labels of that one: what is
// shown is the sum, and a share that goes takes nothing but its own along. One thread at a time.
class Gauge {
 public:
  Gauge() = default;
  explicit Gauge(Metric metric) : metric_(std::move(metric)) {}
  Gauge(Gauge&&) = delete;
  Gauge& operator=(Gauge&&) = delete;
  ~Gauge() { Set(0); }

  void Set(double value) {
    if (value == share_) return;
    metric_.Increment(value - share_);
    share_ = value;
  }

 private:
  Metric metric_;
  double share_ = 0;
};

// A named family; must outlive the metrics made of it. Safe from any thread.
class MetricFamily {
 public:
  // Logs, and makes an empty family, if the server refuses it.
  MetricFamily(TRITONSERVER_MetricKind kind, const char* name, const char* description);

  Metric Make(std::span<const MetricLabel> labels) const;

 private:
  MetricFamilyHandle handle_;
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_TRITON_METRIC_H_
