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

// One time series, a counter or a gauge. Safe from any thread. Metrics are no reason to fail: one
// that the server refused is empty, and everything done to it does nothing.
class Metric {
 public:
  Metric() = default;
  explicit Metric(MetricHandle handle) : handle_(std::move(handle)) {}

  void Set(double value);
  void Increment(double by);

 private:
  MetricHandle handle_;
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
