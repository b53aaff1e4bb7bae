// The entry points that Triton calls. They only forward; no exception leaves them.
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <span>
#include <utility>

#include "backend/core/status.h"
#include "backend/triton/api_version.h"
#include "backend/triton/backend_environment.h"
#include "backend/triton/backend_state.h"
#include "backend/triton/error_translation.h"
#include "backend/triton/instance_state.h"
#include "backend/triton/model_state.h"
#include "backend/triton/triton_abi.h"

namespace seq2seq {
namespace {

// Memory may be what lacks: the text gets its code without any.
TRITONSERVER_Error* Caught(const char* what) {
  char text[256];
  std::snprintf(text, sizeof(text), "INTERNAL: %s", what);
  return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, text);
}

// Runs an entry point's body and gives Triton its error.
template <typename Body>
TRITONSERVER_Error* Guard(Body body) noexcept {
  try {
    const Status status = body();
    return status ? nullptr : ToTriton(status.error()).release();
  } catch (const std::exception& exception) {
    return Caught(exception.what());
  } catch (...) {
    return Caught("unknown exception");
  }
}

// The state behind a handle, by the getter of its kind; null if none was set.
template <typename State, auto Get, typename Handle>
Result<State*> StateOf(Handle* handle) {
  void* state = nullptr;
  SEQ2SEQ_RETURN_IF_ERROR(ToStatus(Get(handle, &state)));
  return static_cast<State*>(state);
}

// Gives `state` to the handle, for TakeState() to delete.
template <auto Set, typename Handle, typename State>
Status GiveState(Handle* handle, std::unique_ptr<State> state) {
  SEQ2SEQ_RETURN_IF_ERROR(ToStatus(Set(handle, state.get())));
  state.release();
  return OkStatus();
}

template <typename State, auto Get, typename Handle>
Status DeleteState(Handle* handle) {
  SEQ2SEQ_ASSIGN_OR_RETURN(State* const state, (StateOf<State, Get>(handle)));
  const std::unique_ptr<State> deleted(state);
  return OkStatus();
}

constexpr auto kBackendState = TRITONBACKEND_BackendState;
constexpr auto kModelState = TRITONBACKEND_ModelState;
constexpr auto kInstanceState = TRITONBACKEND_ModelInstanceState;

Status InitializeBackend(TRITONBACKEND_Backend* backend) {
  uint32_t major = 0;
  uint32_t minor = 0;
  SEQ2SEQ_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_ApiVersion(&major, &minor)));
  SEQ2SEQ_RETURN_IF_ERROR(CheckApiVersion(major, minor));
  return GiveState<TRITONBACKEND_BackendSetState>(
      backend, std::make_unique<BackendState>(MakeBackendEnvironment()));
}

// Triton takes the first preferred group that the machine can serve.
Status DescribeBackend(TRITONBACKEND_Backend* backend, TRITONBACKEND_BackendAttribute* attribute) {
  SEQ2SEQ_ASSIGN_OR_RETURN(const BackendState* const state,
                           (StateOf<BackendState, kBackendState>(backend)));
  const auto prefer = [&](TRITONSERVER_InstanceGroupKind kind) {
    return ToStatus(
        TRITONBACKEND_BackendAttributeAddPreferredInstanceGroup(attribute, kind, 1, nullptr, 0));
  };
  if (state->environment().has_cuda_engine) {
    SEQ2SEQ_RETURN_IF_ERROR(prefer(TRITONSERVER_INSTANCEGROUPKIND_GPU));
  }
  SEQ2SEQ_RETURN_IF_ERROR(prefer(TRITONSERVER_INSTANCEGROUPKIND_CPU));
  return ToStatus(TRITONBACKEND_BackendAttributeSetParallelModelInstanceLoading(attribute, true));
}

Status InitializeModel(TRITONBACKEND_Model* model) {
  TRITONBACKEND_Backend* backend = nullptr;
  SEQ2SEQ_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_ModelBackend(model, &backend)));
  SEQ2SEQ_ASSIGN_OR_RETURN(const BackendState* const shared,
                           (StateOf<BackendState, kBackendState>(backend)));
  SEQ2SEQ_ASSIGN_OR_RETURN(auto state, ModelState::Create(model, *shared));
  return GiveState<TRITONBACKEND_ModelSetState>(model, std::move(state));
}

Status InitializeInstance(TRITONBACKEND_ModelInstance* instance) {
  TRITONBACKEND_Model* model = nullptr;
  SEQ2SEQ_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_ModelInstanceModel(instance, &model)));
  SEQ2SEQ_ASSIGN_OR_RETURN(ModelState* const shared, (StateOf<ModelState, kModelState>(model)));
  SEQ2SEQ_ASSIGN_OR_RETURN(auto state, InstanceState::Create(instance, shared));
  return GiveState<TRITONBACKEND_ModelInstanceSetState>(instance, std::move(state));
}

Status Execute(TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request** requests,
               uint32_t count) {
  SEQ2SEQ_ASSIGN_OR_RETURN(InstanceState* const state,
                           (StateOf<InstanceState, kInstanceState>(instance)));
  return state->Execute(std::span(requests, count));
}

}  // namespace
}  // namespace seq2seq

extern "C" {

TRITONSERVER_Error* TRITONBACKEND_Initialize(TRITONBACKEND_Backend* backend) {
  return seq2seq::Guard([&] { return seq2seq::InitializeBackend(backend); });
}

TRITONSERVER_Error* TRITONBACKEND_Finalize(TRITONBACKEND_Backend* backend) {
  return seq2seq::Guard(
      [&] { return seq2seq::DeleteState<seq2seq::BackendState, seq2seq::kBackendState>(backend); });
}

TRITONSERVER_Error* TRITONBACKEND_GetBackendAttribute(TRITONBACKEND_Backend* backend,
                                                      TRITONBACKEND_BackendAttribute* attribute) {
  return seq2seq::Guard([&] { return seq2seq::DescribeBackend(backend, attribute); });
}

TRITONSERVER_Error* TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model* model) {
  return seq2seq::Guard([&] { return seq2seq::InitializeModel(model); });
}

TRITONSERVER_Error* TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model* model) {
  return seq2seq::Guard(
      [&] { return seq2seq::DeleteState<seq2seq::ModelState, seq2seq::kModelState>(model); });
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceInitialize(TRITONBACKEND_ModelInstance* instance) {
  return seq2seq::Guard([&] { return seq2seq::InitializeInstance(instance); });
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceFinalize(TRITONBACKEND_ModelInstance* instance) {
  return seq2seq::Guard([&] {
    return seq2seq::DeleteState<seq2seq::InstanceState, seq2seq::kInstanceState>(instance);
  });
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceExecute(TRITONBACKEND_ModelInstance* instance,
                                                       TRITONBACKEND_Request** requests,
                                                       uint32_t count) {
  return seq2seq::Guard([&] { return seq2seq::Execute(instance, requests, count); });
}

}  // extern "C"
