// TRITONSERVER_*: errors, log, messages and metrics.
#include <string>

#include "backend/testing/fake_triton/abi_call.h"
#include "backend/triton/triton_abi.h"

using seq2seq::AbiCall;
using seq2seq::FakeTriton;

extern "C" {

TRITONSERVER_Error* TRITONSERVER_ErrorNew(TRITONSERVER_Error_Code code, const char* text) {
  return FakeTriton::Current().NewError(code, text == nullptr ? "" : text);
}

void TRITONSERVER_ErrorDelete(TRITONSERVER_Error* error) {
  AbiCall call("ErrorDelete");
  if (call.Allows(error)) error->alive = false;
}

TRITONSERVER_Error_Code TRITONSERVER_ErrorCode(TRITONSERVER_Error* error) {
  AbiCall call("ErrorCode");
  return call.Allows(error) ? error->code : TRITONSERVER_ERROR_UNKNOWN;
}

const char* TRITONSERVER_ErrorMessage(TRITONSERVER_Error* error) {
  AbiCall call("ErrorMessage");
  return call.Allows(error) ? error->text.c_str() : "";
}

TRITONSERVER_Error* TRITONSERVER_LogMessage(TRITONSERVER_LogLevel level, const char* file, int,
                                            const char* text) {
  AbiCall call("LogMessage");
  if (file == nullptr || text == nullptr) {
    call.triton().Problem("LogMessage with a null argument");
    return call.Misused();
  }
  static constexpr const char* kLevels[] = {"I ", "W ", "E ", "V "};
  call.triton().Log(std::string(kLevels[level]) + text);
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_MessageNewFromSerializedJson(TRITONSERVER_Message** message,
                                                              const char* base, size_t bytes) {
  AbiCall call("MessageNewFromSerializedJson");
  if (message == nullptr || base == nullptr) {
    call.triton().Problem("MessageNewFromSerializedJson with a null argument");
    return call.Misused();
  }
  *message = call.triton().New<TRITONSERVER_Message>();
  (*message)->json.assign(base, bytes);
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_MessageSerializeToJson(TRITONSERVER_Message* message,
                                                        const char** base, size_t* bytes) {
  AbiCall call("MessageSerializeToJson");
  if (!call.Allows(message, base, bytes)) return call.Misused();
  *base = message->json.data();
  *bytes = message->json.size();
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_MessageDelete(TRITONSERVER_Message* message) {
  AbiCall call("MessageDelete");
  if (!call.Allows(message)) return call.Misused();
  message->alive = false;
  return nullptr;
}

TRITONSERVER_Parameter* TRITONSERVER_ParameterNew(const char* name, TRITONSERVER_ParameterType type,
                                                  const void* value) {
  AbiCall call("ParameterNew");
  if (name == nullptr || value == nullptr || type != TRITONSERVER_PARAMETER_STRING) {
    call.triton().Problem("ParameterNew without name or string value");
    return nullptr;
  }
  auto* parameter = call.triton().New<TRITONSERVER_Parameter>();
  parameter->name = name;
  parameter->value = static_cast<const char*>(value);
  return parameter;
}

void TRITONSERVER_ParameterDelete(TRITONSERVER_Parameter* parameter) {
  AbiCall call("ParameterDelete");
  if (call.Allows(parameter)) parameter->alive = false;
}

TRITONSERVER_Error* TRITONSERVER_MetricFamilyNew(TRITONSERVER_MetricFamily** family,
                                                 TRITONSERVER_MetricKind kind, const char* name,
                                                 const char* description) {
  AbiCall call("MetricFamilyNew");
  if (family == nullptr || name == nullptr || description == nullptr) {
    call.triton().Problem("MetricFamilyNew with a null argument");
    return call.Misused();
  }
  if (call.triton().fail_metric_families()) return call.Fail("no metrics");
  *family = call.triton().New<TRITONSERVER_MetricFamily>();
  (*family)->kind = kind;
  (*family)->name = name;
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_MetricFamilyDelete(TRITONSERVER_MetricFamily* family) {
  AbiCall call("MetricFamilyDelete");
  if (!call.Allows(family)) return call.Misused();
  family->alive = false;
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_MetricNew(TRITONSERVER_Metric** metric,
                                           TRITONSERVER_MetricFamily* family,
                                           const TRITONSERVER_Parameter** labels,
                                           uint64_t label_count) {
  AbiCall call("MetricNew");
  if (!call.Allows(family, metric, labels)) return call.Misused();
  *metric = call.triton().New<TRITONSERVER_Metric>();
  (*metric)->family = family;
  for (uint64_t i = 0; i < label_count; ++i) {
    if (call.Allows(labels[i])) (*metric)->labels[labels[i]->name] = labels[i]->value;
  }
  call.triton().ShareValue(*metric);
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_MetricDelete(TRITONSERVER_Metric* metric) {
  AbiCall call("MetricDelete");
  if (!call.Allows(metric) || !call.Allows(metric->family)) return call.Misused();
  metric->alive = false;
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_MetricIncrement(TRITONSERVER_Metric* metric, double value) {
  AbiCall call("MetricIncrement");
  if (!call.Allows(metric)) return call.Misused();
  if (value < 0 && metric->family->kind == TRITONSERVER_METRIC_KIND_COUNTER) {
    call.triton().Problem("MetricIncrement of a counter by less than nothing");
  }
  *metric->value += value;
  return nullptr;
}

}  // extern "C"
