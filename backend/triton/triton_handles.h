// One owning type for each kind of C handle that the backend is responsible for.
#ifndef SEQ2SEQ_BACKEND_TRITON_TRITON_HANDLES_H_
#define SEQ2SEQ_BACKEND_TRITON_TRITON_HANDLES_H_

#include <memory>

#include "backend/triton/triton_abi.h"

namespace seq2seq {
namespace internal {

// A delete call that fails leaves nothing to be done: its error is dropped.
template <auto Delete>
struct HandleDeleter {
  template <typename Handle>
  void operator()(Handle* handle) const {
    if (TRITONSERVER_Error* error = Delete(handle)) TRITONSERVER_ErrorDelete(error);
  }
};

struct ErrorDeleter {
  void operator()(TRITONSERVER_Error* error) const { TRITONSERVER_ErrorDelete(error); }
};

struct ParameterDeleter {
  void operator()(TRITONSERVER_Parameter* parameter) const {
    TRITONSERVER_ParameterDelete(parameter);
  }
};

}  // namespace internal

using ErrorHandle = std::unique_ptr<TRITONSERVER_Error, internal::ErrorDeleter>;
using ParameterHandle = std::unique_ptr<TRITONSERVER_Parameter, internal::ParameterDeleter>;
using MessageHandle =
    std::unique_ptr<TRITONSERVER_Message, internal::HandleDeleter<TRITONSERVER_MessageDelete>>;
// A family must outlive its metrics.
using MetricFamilyHandle =
    std::unique_ptr<TRITONSERVER_MetricFamily,
                    internal::HandleDeleter<TRITONSERVER_MetricFamilyDelete>>;
using MetricHandle =
    std::unique_ptr<TRITONSERVER_Metric, internal::HandleDeleter<TRITONSERVER_MetricDelete>>;
// Only until TRITONBACKEND_ResponseSend takes it.
using ResponseHandle =
    std::unique_ptr<TRITONBACKEND_Response, internal::HandleDeleter<TRITONBACKEND_ResponseDelete>>;
using ResponseFactoryHandle =
    std::unique_ptr<TRITONBACKEND_ResponseFactory,
                    internal::HandleDeleter<TRITONBACKEND_ResponseFactoryDelete>>;

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_TRITON_TRITON_HANDLES_H_
