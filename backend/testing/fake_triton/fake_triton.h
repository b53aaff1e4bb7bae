// A Triton server inside the test: it implements triton_abi.h and notes every misuse of it.
#ifndef SEQ2SEQ_BACKEND_TESTING_FAKE_TRITON_FAKE_TRITON_H_
#define SEQ2SEQ_BACKEND_TESTING_FAKE_TRITON_FAKE_TRITON_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "backend/testing/fake_triton/fake_call.h"
#include "backend/testing/fake_triton/fake_handles.h"
#include "backend/testing/fake_triton/fake_request.h"

namespace seq2seq {

// The C functions have no argument that says which server they belong to, so one FakeTriton at a
// time is the process's server, from its construction to its destruction. It goes after everything
// that calls Triton. Safe from any thread.
//
// Noted as problems: null arguments; use of a handle after its deletion or release, or twice
// deleted; a send after FINAL, a second FINAL; and at the end, what was not given back: requests
// without FINAL or not released, factories, responses, errors, messages, parameters, metrics,
// families.
class FakeTriton {
 public:
  FakeTriton();
  ~FakeTriton();
  FakeTriton(const FakeTriton&) = delete;
  FakeTriton& operator=(const FakeTriton&) = delete;

  static FakeTriton& Current();

  // Things to hand to the backend. They belong to the fake.
  TRITONBACKEND_Backend* NewBackend();
  TRITONBACKEND_BackendAttribute* NewAttribute();
  TRITONBACKEND_Model* NewModel(TRITONBACKEND_Backend* backend, std::string name,
                                std::string config);
  TRITONBACKEND_ModelInstance* NewInstance(TRITONBACKEND_Model* model, std::string name,
                                           TRITONSERVER_InstanceGroupKind kind, int32_t device_id);
  // A request on its way; until it reaches the backend, Withdraw() takes it back.
  TRITONBACKEND_Request* NewRequest(FakeRequest request);
  void Withdraw(TRITONBACKEND_Request* request);

  void set_api_version(uint32_t major, uint32_t minor) { api_version_ = {major, minor}; }
  std::pair<uint32_t, uint32_t> api_version() const { return api_version_; }
  void FailMetricFamilies() { fail_metric_families_ = true; }
  bool fail_metric_families() const { return fail_metric_families_; }

  // The value of the one metric of that family whose labels include `labels`; NaN unless there is
  // one.
  double MetricValue(const std::string& family,
                     const std::map<std::string, std::string>& labels) const;
  // The metrics that live and have the same family and labels have one value.
  void ShareValue(TRITONSERVER_Metric* metric);
  // /metrics: one line a metric, `name{label="value",...} value`, sorted.
  std::vector<std::string> MetricLines() const;
  std::vector<std::string> log() const;

  // Misuse so far.
  std::vector<std::string> problems() const;
  // Misuse, and everything that has not been given back. To be asked when nothing is in flight and
  // all models and the backend are finalized.
  std::vector<std::string> ProblemsAtEnd() const;

  // For the ABI functions.
  void Problem(std::string what);
  void Log(std::string line);
  std::recursive_mutex& mutex() const { return mutex_; }
  TRITONSERVER_Error* NewError(TRITONSERVER_Error_Code code, std::string text);
  // Notes a problem in the words of `call` and returns false, unless `handle` is alive.
  bool Check(const char* call, const FakeHandle* handle);
  template <typename Handle>
  Handle* New() {
    std::lock_guard lock(mutex_);
    auto handle = std::make_unique<Handle>();
    Handle* const raw = handle.get();
    handles_.push_back(std::move(handle));
    return raw;
  }

 private:
  mutable std::recursive_mutex mutex_;
  std::vector<std::unique_ptr<FakeHandle>> handles_;
  std::vector<std::string> problems_;
  std::vector<std::string> log_;
  std::pair<uint32_t, uint32_t> api_version_ = {1, 19};
  bool fail_metric_families_ = false;
};

// Takes the error and returns its text; empty for none.
std::string TakeText(TRITONSERVER_Error* error);

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_TESTING_FAKE_TRITON_FAKE_TRITON_H_
