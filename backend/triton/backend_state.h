// What all models of the backend share, from Initialize to Finalize.
#ifndef SEQ2SEQ_BACKEND_TRITON_BACKEND_STATE_H_
#define SEQ2SEQ_BACKEND_TRITON_BACKEND_STATE_H_

#include <utility>

#include "backend/triton/backend_environment.h"
#include "backend/triton/metric_families.h"

namespace seq2seq {

// Read-only after construction.
class BackendState {
 public:
  explicit BackendState(BackendEnvironment environment) : environment_(std::move(environment)) {}

  const BackendEnvironment& environment() const { return environment_; }
  const MetricFamilies& metrics() const { return metrics_; }

 private:
  const BackendEnvironment environment_;
  const MetricFamilies metrics_;
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_TRITON_BACKEND_STATE_H_
