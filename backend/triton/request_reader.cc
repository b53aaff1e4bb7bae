#include "backend/triton/request_reader.h"

#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backend/core/format.h"
#include "backend/triton/error_translation.h"
#include "backend/triton/model_config.h"

namespace seq2seq {
namespace {

// What Triton itself complains about while a request is read is the request's fault.
Status Ask(TRITONSERVER_Error* error) {
  if (error == nullptr) return OkStatus();
  return InvalidArgument(Format("the request can't be read: {}", TakeError(error).message));
}

struct InputProperties {
  std::string_view name;
  TRITONSERVER_DataType type = TRITONSERVER_TYPE_INVALID;
  uint64_t bytes = 0;
  uint32_t buffers = 0;
};

Result<InputProperties> PropertiesOf(TRITONBACKEND_Input* input) {
  InputProperties properties;
  const char* name = nullptr;
  const int64_t* shape = nullptr;
  uint32_t dims = 0;
  SEQ2SEQ_RETURN_IF_ERROR(Ask(TRITONBACKEND_InputProperties(
      input, &name, &properties.type, &shape, &dims, &properties.bytes, &properties.buffers)));
  if (name == nullptr) return InvalidArgument("an input has no name");
  properties.name = name;
  return properties;
}

Status CopyBuffer(TRITONBACKEND_Input* input, uint32_t index, const InputProperties& properties,
                  InstanceAccount& account, std::vector<int32_t>* ids, uint64_t* filled) {
  const void* buffer = nullptr;
  uint64_t bytes = 0;
  TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
  int64_t memory_id = 0;
  SEQ2SEQ_RETURN_IF_ERROR(
      Ask(TRITONBACKEND_InputBuffer(input, index, &buffer, &bytes, &memory, &memory_id)));
  if (bytes == 0) return OkStatus();
  if (buffer == nullptr || bytes > properties.bytes - *filled) {
    return InvalidArgument(Format("input '{}' does not hold the {} bytes that it announces",
                                  properties.name, properties.bytes));
  }
  std::byte* const destination = reinterpret_cast<std::byte*>(ids->data()) + *filled;
  *filled += bytes;
  if (memory == TRITONSERVER_MEMORY_GPU) {
    return account.CopyToHost(destination, buffer, bytes, memory_id);
  }
  std::memcpy(destination, buffer, bytes);
  return OkStatus();
}

Result<std::vector<int32_t>> ReadIds(TRITONBACKEND_Input* input, const InputProperties& properties,
                                     InstanceAccount& account) {
  if (properties.type != TRITONSERVER_TYPE_INT32 || properties.bytes % sizeof(int32_t) != 0) {
    return InvalidArgument(Format("input '{}' must be INT32", properties.name));
  }
  std::vector<int32_t> ids(properties.bytes / sizeof(int32_t));
  uint64_t filled = 0;
  for (uint32_t i = 0; i < properties.buffers; ++i) {
    SEQ2SEQ_RETURN_IF_ERROR(CopyBuffer(input, i, properties, account, &ids, &filled));
  }
  if (filled != properties.bytes) {
    return InvalidArgument(Format("input '{}' holds {} bytes of the {} that it announces",
                                  properties.name, filled, properties.bytes));
  }
  return ids;
}

Status ReadInputs(TRITONBACKEND_Request* request, InstanceAccount& account, RawRequest* raw) {
  uint32_t count = 0;
  SEQ2SEQ_RETURN_IF_ERROR(Ask(TRITONBACKEND_RequestInputCount(request, &count)));
  for (uint32_t i = 0; i < count; ++i) {
    TRITONBACKEND_Input* input = nullptr;
    SEQ2SEQ_RETURN_IF_ERROR(Ask(TRITONBACKEND_RequestInputByIndex(request, i, &input)));
    SEQ2SEQ_ASSIGN_OR_RETURN(const InputProperties properties, PropertiesOf(input));
    std::optional<std::vector<int32_t>>* ids = nullptr;
    if (properties.name == kInputIds) ids = &raw->input_ids;
    if (properties.name == kDecoderInputIds) ids = &raw->decoder_input_ids;
    if (ids == nullptr || ids->has_value()) {
      return InvalidArgument(Format("{} input '{}'; allowed are {} and {}, once each",
                                    ids == nullptr ? "unknown" : "second", properties.name,
                                    kInputIds, kDecoderInputIds));
    }
    SEQ2SEQ_ASSIGN_OR_RETURN(*ids, ReadIds(input, properties, account));
  }
  return OkStatus();
}

Result<OptionValue> ToOptionValue(const char* key, TRITONSERVER_ParameterType type,
                                  const void* value) {
  if (value != nullptr) {
    switch (type) {
      case TRITONSERVER_PARAMETER_STRING:
        return OptionValue(std::string(static_cast<const char*>(value)));
      case TRITONSERVER_PARAMETER_INT:
        return OptionValue(*static_cast<const int64_t*>(value));
      case TRITONSERVER_PARAMETER_BOOL:
        return OptionValue(*static_cast<const bool*>(value));
      case TRITONSERVER_PARAMETER_DOUBLE:
        return OptionValue(*static_cast<const double*>(value));
      case TRITONSERVER_PARAMETER_BYTES:
        break;
    }
  }
  return InvalidArgument(
      Format("option '{}' must be a string, an integer, a boolean or a double", key));
}

Status ReadOptions(TRITONBACKEND_Request* request, RawRequest* raw) {
  uint32_t count = 0;
  SEQ2SEQ_RETURN_IF_ERROR(Ask(TRITONBACKEND_RequestParameterCount(request, &count)));
  for (uint32_t i = 0; i < count; ++i) {
    const char* key = nullptr;
    TRITONSERVER_ParameterType type = TRITONSERVER_PARAMETER_BYTES;
    const void* value = nullptr;
    SEQ2SEQ_RETURN_IF_ERROR(Ask(TRITONBACKEND_RequestParameter(request, i, &key, &type, &value)));
    if (key == nullptr) return InvalidArgument("an option has no name");
    SEQ2SEQ_ASSIGN_OR_RETURN(OptionValue option, ToOptionValue(key, type, value));
    raw->options.emplace_back(key, std::move(option));
  }
  return OkStatus();
}

Result<RequestedOutputs> ReadOutputs(TRITONBACKEND_Request* request) {
  RequestedOutputs outputs;
  uint32_t count = 0;
  SEQ2SEQ_RETURN_IF_ERROR(Ask(TRITONBACKEND_RequestOutputCount(request, &count)));
  for (uint32_t i = 0; i < count; ++i) {
    const char* name = nullptr;
    SEQ2SEQ_RETURN_IF_ERROR(Ask(TRITONBACKEND_RequestOutputName(request, i, &name)));
    const std::string_view asked = name == nullptr ? "" : name;
    if (asked == kOutputIds) outputs.output_ids = true;
    if (asked == kLogprobs) outputs.logprobs = true;
  }
  return outputs;
}

}  // namespace

Result<ReadRequest> ReadTritonRequest(TRITONBACKEND_Request* request, InstanceAccount& account,
                                      int64_t arrival_ns) {
  ReadRequest read;
  read.raw.arrival_ns = arrival_ns;
  SEQ2SEQ_RETURN_IF_ERROR(ReadInputs(request, account, &read.raw));
  SEQ2SEQ_RETURN_IF_ERROR(ReadOptions(request, &read.raw));
  SEQ2SEQ_RETURN_IF_ERROR(
      Ask(TRITONBACKEND_InferenceRequestTimeoutMicroseconds(request, &read.raw.timeout_us)));
  SEQ2SEQ_ASSIGN_OR_RETURN(read.outputs, ReadOutputs(request));
  return read;
}

}  // namespace seq2seq
