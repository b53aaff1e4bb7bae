#include "backend/triton/instance_account.h"

#include <mutex>

#include "backend/core/format.h"
#include "backend/triton/triton_log.h"

namespace seq2seq {
namespace {

std::unexpected<Error> NoCopier(int64_t device_id) {
  return Unsupported(
      Format("a tensor is in the memory of GPU {}, which this instance's engine cannot reach; use "
             "host memory",
             device_id));
}

}  // namespace

void InstanceAccount::DetachInstance() {
  std::unique_lock lock(mutex_);
  instance_ = nullptr;
}

void InstanceAccount::Detach() {
  std::unique_lock lock(mutex_);
  instance_ = nullptr;
  copier_ = nullptr;
}

void InstanceAccount::Report(TRITONBACKEND_Request* request, RequestOutcome outcome,
                             const RequestTimes& times) {
  metrics_->CountRequest(outcome);
  std::shared_lock lock(mutex_);
  if (instance_ == nullptr) return;
  const bool success = outcome == RequestOutcome::kOk || outcome == RequestOutcome::kTimeout;
  const auto arrival = static_cast<uint64_t>(times.arrival_ns);
  const auto computed = static_cast<uint64_t>(times.computed_ns);
  const auto end = static_cast<uint64_t>(times.end_ns);
  LogFailure("ModelInstanceReportStatistics",
             TRITONBACKEND_ModelInstanceReportStatistics(instance_, request, success, arrival,
                                                         arrival, computed, end));
  // Batches form and dissolve at every step: each request counts as an execution of its own.
  if (success) {
    LogFailure("ModelInstanceReportBatchStatistics",
               TRITONBACKEND_ModelInstanceReportBatchStatistics(instance_, 1, arrival, arrival,
                                                                computed, end));
  }
}

Status InstanceAccount::CopyToHost(void* destination, const void* source, size_t bytes,
                                   int64_t device_id) {
  std::shared_lock lock(mutex_);
  if (copier_ == nullptr) return NoCopier(device_id);
  return copier_->ToHost(destination, source, bytes, device_id);
}

Status InstanceAccount::CopyToDevice(void* destination, const void* source, size_t bytes,
                                     int64_t device_id) {
  std::shared_lock lock(mutex_);
  if (copier_ == nullptr) return NoCopier(device_id);
  return copier_->ToDevice(destination, source, bytes, device_id);
}

}  // namespace seq2seq
