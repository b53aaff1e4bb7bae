#include "backend/triton/metric.h"

#include <vector>

#include "backend/core/format.h"
#include "backend/triton/error_translation.h"
#include "backend/triton/triton_log.h"

namespace seq2seq {
namespace {

void Drop(TRITONSERVER_Error* error) { const ErrorHandle dropped(error); }

}  // namespace

void Metric::Increment(double by) {
  if (handle_ != nullptr) Drop(TRITONSERVER_MetricIncrement(handle_.get(), by));
}

MetricFamily::MetricFamily(TRITONSERVER_MetricKind kind, const char* name,
                           const char* description) {
  TRITONSERVER_MetricFamily* family = nullptr;
  const Status made = ToStatus(TRITONSERVER_MetricFamilyNew(&family, kind, name, description));
  handle_.reset(family);
  if (!made) LogWarning(Format("no metric {}: {}", name, made.error().message));
}

Metric MetricFamily::Make(std::span<const MetricLabel> labels) const {
  if (handle_ == nullptr) return Metric();
  std::vector<ParameterHandle> owned;
  std::vector<const TRITONSERVER_Parameter*> parameters;
  for (const MetricLabel& label : labels) {
    owned.emplace_back(
        TRITONSERVER_ParameterNew(label.name, TRITONSERVER_PARAMETER_STRING, label.value.c_str()));
    parameters.push_back(owned.back().get());
  }
  TRITONSERVER_Metric* metric = nullptr;
  const Status made = ToStatus(
      TRITONSERVER_MetricNew(&metric, handle_.get(), parameters.data(), parameters.size()));
  if (!made) LogWarning(Format("a metric was refused: {}", made.error().message));
  return Metric(MetricHandle(metric));
}

}  // namespace seq2seq
