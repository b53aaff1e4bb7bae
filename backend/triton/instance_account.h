// What a request still needs of the instance that it came through, even after that instance is
// gone.
#ifndef SEQ2SEQ_BACKEND_TRITON_INSTANCE_ACCOUNT_H_
#define SEQ2SEQ_BACKEND_TRITON_INSTANCE_ACCOUNT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <shared_mutex>

#include "backend/core/memory_copier.h"
#include "backend/core/status.h"
#include "backend/triton/instance_metrics.h"
#include "backend/triton/request_outcome.h"
#include "backend/triton/triton_abi.h"

namespace seq2seq {

// Steady-clock nanoseconds of a request's life.
struct RequestTimes {
  int64_t arrival_ns = 0;
  int64_t computed_ns = 0;  // its result was known
  int64_t end_ns = 0;       // its last response had been sent
};

// Requests wait in the model's queue and are served by any instance, so one can outlive the
// instance that Execute was called on. Each holds this account; the instance detaches it before it
// goes. Safe from any thread.
class InstanceAccount {
 public:
  // `copier` may be null: then device memory is refused.
  InstanceAccount(TRITONBACKEND_ModelInstance* instance, MemoryCopier* copier,
                  std::shared_ptr<InstanceMetrics> metrics)
      : instance_(instance), copier_(copier), metrics_(std::move(metrics)) {}

  // Wait for calls below that run; afterwards they don't touch the instance, or it and the copier.
  void DetachInstance();
  void Detach();

  // Counts the end of `request`, here and in the server's statistics. Before its release.
  void Report(TRITONBACKEND_Request* request, RequestOutcome outcome, const RequestTimes& times);

  // As of MemoryCopier; kUnsupported where there is none.
  [[nodiscard]] Status CopyToHost(void* destination, const void* source, size_t bytes,
                                  int64_t device_id);
  [[nodiscard]] Status CopyToDevice(void* destination, const void* source, size_t bytes,
                                    int64_t device_id);

 private:
  std::shared_mutex mutex_;  // shared: uses instance_ and copier_
  TRITONBACKEND_ModelInstance* instance_;
  MemoryCopier* copier_;
  const std::shared_ptr<InstanceMetrics> metrics_;
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_TRITON_INSTANCE_ACCOUNT_H_
