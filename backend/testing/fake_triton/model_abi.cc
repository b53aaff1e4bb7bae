// TRITONBACKEND_*: backend, models and instances.
#include "backend/testing/fake_triton/abi_call.h"
#include "backend/triton/triton_abi.h"

using seq2seq::AbiCall;

extern "C" {

TRITONSERVER_Error* TRITONBACKEND_ApiVersion(uint32_t* major, uint32_t* minor) {
  AbiCall call("ApiVersion");
  *major = call.triton().api_version().first;
  *minor = call.triton().api_version().second;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_BackendState(TRITONBACKEND_Backend* backend, void** state) {
  AbiCall call("BackendState");
  if (!call.Allows(backend, state)) return call.Misused();
  *state = backend->state;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_BackendSetState(TRITONBACKEND_Backend* backend, void* state) {
  AbiCall call("BackendSetState");
  if (!call.Allows(backend)) return call.Misused();
  backend->state = state;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_BackendAttributeAddPreferredInstanceGroup(
    TRITONBACKEND_BackendAttribute* attribute, TRITONSERVER_InstanceGroupKind kind, uint64_t,
    const uint64_t*, uint64_t) {
  AbiCall call("BackendAttributeAddPreferredInstanceGroup");
  if (!call.Allows(attribute)) return call.Misused();
  attribute->preferred_groups.push_back(kind);
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_BackendAttributeSetParallelModelInstanceLoading(
    TRITONBACKEND_BackendAttribute* attribute, bool enabled) {
  AbiCall call("BackendAttributeSetParallelModelInstanceLoading");
  if (!call.Allows(attribute)) return call.Misused();
  attribute->parallel_loading = enabled;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelName(TRITONBACKEND_Model* model, const char** name) {
  AbiCall call("ModelName");
  if (!call.Allows(model, name)) return call.Misused();
  *name = model->name.c_str();
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelVersion(TRITONBACKEND_Model* model, uint64_t* version) {
  AbiCall call("ModelVersion");
  if (!call.Allows(model, version)) return call.Misused();
  *version = model->version;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelRepository(TRITONBACKEND_Model* model,
                                                  TRITONBACKEND_ArtifactType* type,
                                                  const char** location) {
  AbiCall call("ModelRepository");
  if (!call.Allows(model, type, location)) return call.Misused();
  *type = TRITONBACKEND_ARTIFACT_FILESYSTEM;
  *location = model->repository.c_str();
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelConfig(TRITONBACKEND_Model* model, uint32_t version,
                                              TRITONSERVER_Message** json) {
  AbiCall call("ModelConfig");
  if (!call.Allows(model, json) || version != 1) return call.Misused();
  if (model->fail_config) return call.Fail("no model configuration");
  *json = call.triton().New<TRITONSERVER_Message>();
  (*json)->json = model->config;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelAutoCompleteConfig(TRITONBACKEND_Model* model,
                                                          bool* enabled) {
  AbiCall call("ModelAutoCompleteConfig");
  if (!call.Allows(model, enabled)) return call.Misused();
  *enabled = model->auto_complete;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelSetConfig(TRITONBACKEND_Model* model, uint32_t version,
                                                 TRITONSERVER_Message* json) {
  AbiCall call("ModelSetConfig");
  if (!call.Allows(model) || !call.Allows(json) || version != 1) return call.Misused();
  model->config = json->json;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelBackend(TRITONBACKEND_Model* model,
                                               TRITONBACKEND_Backend** backend) {
  AbiCall call("ModelBackend");
  if (!call.Allows(model, backend)) return call.Misused();
  *backend = model->backend;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelState(TRITONBACKEND_Model* model, void** state) {
  AbiCall call("ModelState");
  if (!call.Allows(model, state)) return call.Misused();
  *state = model->state;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelSetState(TRITONBACKEND_Model* model, void* state) {
  AbiCall call("ModelSetState");
  if (!call.Allows(model)) return call.Misused();
  model->state = state;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceName(TRITONBACKEND_ModelInstance* instance,
                                                    const char** name) {
  AbiCall call("ModelInstanceName");
  if (!call.Allows(instance, name)) return call.Misused();
  *name = instance->name.c_str();
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceKind(TRITONBACKEND_ModelInstance* instance,
                                                    TRITONSERVER_InstanceGroupKind* kind) {
  AbiCall call("ModelInstanceKind");
  if (!call.Allows(instance, kind)) return call.Misused();
  *kind = instance->kind;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceDeviceId(TRITONBACKEND_ModelInstance* instance,
                                                        int32_t* device_id) {
  AbiCall call("ModelInstanceDeviceId");
  if (!call.Allows(instance, device_id)) return call.Misused();
  *device_id = instance->device_id;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceModel(TRITONBACKEND_ModelInstance* instance,
                                                     TRITONBACKEND_Model** model) {
  AbiCall call("ModelInstanceModel");
  if (!call.Allows(instance, model)) return call.Misused();
  *model = instance->model;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceState(TRITONBACKEND_ModelInstance* instance,
                                                     void** state) {
  AbiCall call("ModelInstanceState");
  if (!call.Allows(instance, state)) return call.Misused();
  *state = instance->state;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceSetState(TRITONBACKEND_ModelInstance* instance,
                                                        void* state) {
  AbiCall call("ModelInstanceSetState");
  if (!call.Allows(instance)) return call.Misused();
  instance->state = state;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceReportStatistics(
    TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request* request, bool success,
    uint64_t exec_start_ns, uint64_t compute_start_ns, uint64_t compute_end_ns,
    uint64_t exec_end_ns) {
  AbiCall call("ModelInstanceReportStatistics");
  if (!call.Allows(instance) || !call.Allows(request)) return call.Misused();
  if (exec_start_ns > compute_start_ns || compute_start_ns > compute_end_ns ||
      compute_end_ns > exec_end_ns) {
    call.triton().Problem("ModelInstanceReportStatistics with times out of order");
  }
  request->call->OnEvent("report");
  request->call->OnStatistics({success, exec_start_ns, compute_end_ns, exec_end_ns});
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceReportBatchStatistics(
    TRITONBACKEND_ModelInstance* instance, uint64_t batch_size, uint64_t, uint64_t, uint64_t,
    uint64_t) {
  AbiCall call("ModelInstanceReportBatchStatistics");
  if (!call.Allows(instance)) return call.Misused();
  if (batch_size == 0) call.triton().Problem("a batch of nothing");
  return nullptr;
}

}  // extern "C"
