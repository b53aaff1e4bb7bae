#include "backend/testing/fake_triton/fake_server.h"

#include <algorithm>
#include <utility>

namespace seq2seq {

FakeServer::~FakeServer() {
  for (TRITONBACKEND_Model* model : models_) Finalize(model);
  Stop();
}

std::string FakeServer::Start() {
  backend_ = triton_.NewBackend();
  std::string error = TakeText(TRITONBACKEND_Initialize(backend_));
  if (!error.empty()) backend_ = nullptr;
  return error;
}

void FakeServer::Stop() {
  if (backend_ == nullptr) return;
  const std::string error = TakeText(TRITONBACKEND_Finalize(std::exchange(backend_, nullptr)));
  if (!error.empty()) triton_.Problem("Finalize: " + error);
}

std::string FakeServer::Load(const FakeModelSetup& setup) {
  TRITONBACKEND_Model* model = triton_.NewModel(backend_, setup.name, setup.config);
  model->auto_complete = setup.auto_complete;
  model->fail_config = setup.fail_config;
  models_.push_back(model);
  std::string error = Initialize(model, setup);
  if (!error.empty()) Finalize(model);
  return error;
}

std::string FakeServer::Initialize(TRITONBACKEND_Model* model, const FakeModelSetup& setup) {
  std::string error = TakeText(TRITONBACKEND_ModelInitialize(model));
  if (!error.empty()) return error;
  for (const FakeInstance& instance : setup.instances) {
    const std::string name = setup.name + "_" + std::to_string(model->instances.size());
    auto* handle = triton_.NewInstance(model, name, instance.kind, instance.device_id);
    error = TakeText(TRITONBACKEND_ModelInstanceInitialize(handle));
    if (!error.empty()) return error;
    model->instances.push_back(handle);
  }
  return "";
}

void FakeServer::Finalize(TRITONBACKEND_ModelInstance* instance) {
  if (!instance->alive) return;
  const std::string error = TakeText(TRITONBACKEND_ModelInstanceFinalize(instance));
  if (!error.empty()) triton_.Problem("ModelInstanceFinalize: " + error);
  std::lock_guard lock(triton_.mutex());
  instance->alive = false;
}

void FakeServer::RemoveInstance(const std::string& name, int instance) {
  Finalize(Find(name)->instances.at(instance));
}

void FakeServer::Finalize(TRITONBACKEND_Model* model) {
  if (!model->alive) return;
  for (TRITONBACKEND_ModelInstance* instance : model->instances) Finalize(instance);
  if (model->state != nullptr) {
    const std::string error = TakeText(TRITONBACKEND_ModelFinalize(model));
    if (!error.empty()) triton_.Problem("ModelFinalize: " + error);
  }
  std::lock_guard lock(triton_.mutex());
  model->alive = false;
}

void FakeServer::Unload(const std::string& name) {
  if (TRITONBACKEND_Model* model = Find(name)) Finalize(model);
}

void FakeServer::UnloadFirst(const std::string& name) {
  const auto first = std::ranges::find_if(models_, [&](const TRITONBACKEND_Model* model) {
    return model->alive && model->name == name;
  });
  if (first != models_.end()) Finalize(*first);
}

std::string FakeServer::config(const std::string& name) const {
  const TRITONBACKEND_Model* model = Find(name);
  return model == nullptr ? "" : model->config;
}

std::shared_ptr<FakeCall> FakeServer::Infer(const std::string& model, FakeRequest data,
                                            int instance, std::string* execute_error) {
  TRITONBACKEND_Request* request = triton_.NewRequest(std::move(data));
  std::shared_ptr<FakeCall> call = request->call;
  const std::string error = TakeText(
      TRITONBACKEND_ModelInstanceExecute(Find(model)->instances.at(instance), &request, 1));
  if (!error.empty()) triton_.Withdraw(request);
  if (execute_error != nullptr) {
    *execute_error = error;
  } else if (!error.empty()) {
    triton_.Problem("Execute: " + error);
  }
  return call;
}

TRITONBACKEND_Model* FakeServer::Find(const std::string& name) const {
  TRITONBACKEND_Model* found = nullptr;
  for (TRITONBACKEND_Model* model : models_) {
    if (model->name == name) found = model;
  }
  return found;
}

}  // namespace seq2seq
