// TRITONBACKEND_*: requests and their inputs.
#include <type_traits>
#include <variant>

#include "backend/testing/fake_triton/abi_call.h"
#include "backend/triton/triton_abi.h"

using seq2seq::AbiCall;

namespace {

TRITONSERVER_ParameterType TypeOf(const seq2seq::FakeParameterValue& value) {
  // The alternatives stand in the order of the enumerators.
  return static_cast<TRITONSERVER_ParameterType>(value.index());
}

const void* ValueOf(const seq2seq::FakeParameterValue& value) {
  return std::visit(
      [](const auto& held) -> const void* {
        using Held = std::decay_t<decltype(held)>;
        if constexpr (std::is_same_v<Held, std::string>) {
          return held.c_str();
        } else {
          return &held;
        }
      },
      value);
}

}  // namespace

extern "C" {

TRITONSERVER_Error* TRITONBACKEND_InferenceRequestTimeoutMicroseconds(
    TRITONBACKEND_Request* request, uint64_t* timeout_us) {
  AbiCall call("InferenceRequestTimeoutMicroseconds");
  if (!call.Allows(request, timeout_us)) return call.Misused();
  *timeout_us = request->data.timeout_us;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_RequestParameterCount(TRITONBACKEND_Request* request,
                                                        uint32_t* count) {
  AbiCall call("RequestParameterCount");
  if (!call.Allows(request, count)) return call.Misused();
  *count = static_cast<uint32_t>(request->data.parameters.size());
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_RequestParameter(TRITONBACKEND_Request* request, uint32_t index,
                                                   const char** key,
                                                   TRITONSERVER_ParameterType* type,
                                                   const void** value) {
  AbiCall call("RequestParameter");
  if (!call.Allows(request, key, type, value)) return call.Misused();
  const auto& parameter = request->data.parameters.at(index);
  *key = parameter.first.c_str();
  *type = TypeOf(parameter.second);
  *value = ValueOf(parameter.second);
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_RequestInputCount(TRITONBACKEND_Request* request,
                                                    uint32_t* count) {
  AbiCall call("RequestInputCount");
  if (!call.Allows(request, count)) return call.Misused();
  *count = static_cast<uint32_t>(request->inputs.size());
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_RequestInputByIndex(TRITONBACKEND_Request* request,
                                                      uint32_t index, TRITONBACKEND_Input** input) {
  AbiCall call("RequestInputByIndex");
  if (!call.Allows(request, input)) return call.Misused();
  *input = request->inputs.at(index);
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_RequestOutputCount(TRITONBACKEND_Request* request,
                                                     uint32_t* count) {
  AbiCall call("RequestOutputCount");
  if (!call.Allows(request, count)) return call.Misused();
  *count = static_cast<uint32_t>(request->data.outputs.size());
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_RequestOutputName(TRITONBACKEND_Request* request, uint32_t index,
                                                    const char** name) {
  AbiCall call("RequestOutputName");
  if (!call.Allows(request, name)) return call.Misused();
  *name = request->data.outputs.at(index).c_str();
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_RequestRelease(TRITONBACKEND_Request* request, uint32_t flags) {
  AbiCall call("RequestRelease");
  if (!call.Allows(request)) return call.Misused();
  if (flags != TRITONSERVER_REQUEST_RELEASE_ALL) call.triton().Problem("RequestRelease flags");
  request->alive = false;
  request->call->OnEvent("release");
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_InputProperties(TRITONBACKEND_Input* input, const char** name,
                                                  TRITONSERVER_DataType* type,
                                                  const int64_t** shape, uint32_t* dims,
                                                  uint64_t* bytes, uint32_t* buffers) {
  AbiCall call("InputProperties");
  if (!call.Allows(input, name, type, shape, dims, bytes, buffers) ||
      !call.Allows(input->request)) {
    return call.Misused();
  }
  if (input->request->data.faults.fail_inputs) return call.Fail("an input can't be read");
  *name = input->data.name.c_str();
  *type = input->data.type;
  *shape = input->data.shape.data();
  *dims = static_cast<uint32_t>(input->data.shape.size());
  *bytes = input->data.announced_bytes;
  *buffers = static_cast<uint32_t>(input->data.buffers.size());
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_InputBuffer(TRITONBACKEND_Input* input, uint32_t index,
                                              const void** buffer, uint64_t* bytes,
                                              TRITONSERVER_MemoryType* type, int64_t* type_id) {
  AbiCall call("InputBuffer");
  if (!call.Allows(input, buffer, bytes, type, type_id) || !call.Allows(input->request)) {
    return call.Misused();
  }
  const seq2seq::FakeBuffer& data = input->data.buffers.at(index);
  *buffer = data.bytes.data();
  *bytes = data.bytes.size();
  *type = data.memory;
  *type_id = data.memory_id;
  return nullptr;
}

}  // extern "C"
