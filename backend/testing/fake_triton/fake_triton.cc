#include "backend/testing/fake_triton/fake_triton.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <set>
#include <sstream>

namespace seq2seq {
namespace {

// The ABI's functions reach the fake only through the process.
std::atomic<FakeTriton*> current = nullptr;

template <typename Handle>
int CountAlive(const std::vector<std::unique_ptr<FakeHandle>>& handles) {
  return static_cast<int>(std::count_if(handles.begin(), handles.end(), [](const auto& handle) {
    return handle->alive && dynamic_cast<const Handle*>(handle.get()) != nullptr;
  }));
}

}  // namespace

FakeTriton::FakeTriton() {
  if (current.exchange(this) != nullptr) {
    std::fputs("two FakeTritons at a time\n", stderr);
    std::abort();
  }
}

FakeTriton::~FakeTriton() { current = nullptr; }

FakeTriton& FakeTriton::Current() {
  FakeTriton* const triton = current;
  if (triton == nullptr) {
    std::fputs("Triton was called after its end\n", stderr);
    std::abort();
  }
  return *triton;
}

TRITONBACKEND_Backend* FakeTriton::NewBackend() { return New<TRITONBACKEND_Backend>(); }

TRITONBACKEND_BackendAttribute* FakeTriton::NewAttribute() {
  return New<TRITONBACKEND_BackendAttribute>();
}

TRITONBACKEND_Model* FakeTriton::NewModel(TRITONBACKEND_Backend* backend, std::string name,
                                          std::string config) {
  auto* model = New<TRITONBACKEND_Model>();
  model->backend = backend;
  model->repository = "/models/" + name;
  model->name = std::move(name);
  model->config = std::move(config);
  return model;
}

TRITONBACKEND_ModelInstance* FakeTriton::NewInstance(TRITONBACKEND_Model* model, std::string name,
                                                     TRITONSERVER_InstanceGroupKind kind,
                                                     int32_t device_id) {
  auto* instance = New<TRITONBACKEND_ModelInstance>();
  instance->model = model;
  instance->name = std::move(name);
  instance->kind = kind;
  instance->device_id = device_id;
  return instance;
}

TRITONBACKEND_Request* FakeTriton::NewRequest(FakeRequest data) {
  auto* request = New<TRITONBACKEND_Request>();
  request->call = std::make_shared<FakeCall>();
  for (const FakeInput& input : data.inputs) {
    auto* handle = New<TRITONBACKEND_Input>();
    handle->request = request;
    handle->data = input;
    request->inputs.push_back(handle);
  }
  request->data = std::move(data);
  return request;
}

void FakeTriton::Withdraw(TRITONBACKEND_Request* request) {
  std::lock_guard lock(mutex_);
  if (!request->alive) Problem("a request was released although Execute failed");
  if (request->factory != nullptr && request->factory->alive) {
    Problem("Execute failed and kept a response factory");
  }
  request->alive = false;
}

double FakeTriton::MetricValue(const std::string& family,
                               const std::map<std::string, std::string>& labels) const {
  std::lock_guard lock(mutex_);
  double value = std::numeric_limits<double>::quiet_NaN();
  std::set<const double*> found;
  for (const auto& handle : handles_) {
    const auto* metric = dynamic_cast<const TRITONSERVER_Metric*>(handle.get());
    if (metric == nullptr || !metric->alive || metric->family->name != family) continue;
    const bool matches = std::all_of(labels.begin(), labels.end(), [metric](const auto& label) {
      const auto own = metric->labels.find(label.first);
      return own != metric->labels.end() && own->second == label.second;
    });
    if (!matches) continue;
    found.insert(metric->value.get());
    value = *metric->value;
  }
  return found.size() == 1 ? value : std::numeric_limits<double>::quiet_NaN();
}

void FakeTriton::ShareValue(TRITONSERVER_Metric* metric) {
  for (const auto& handle : handles_) {
    const auto* other = dynamic_cast<const TRITONSERVER_Metric*>(handle.get());
    if (other == nullptr || other == metric || !other->alive) continue;
    if (other->family == metric->family && other->labels == metric->labels) {
      metric->value = other->value;
      return;
    }
  }
  metric->value = std::make_shared<double>(0);
}

std::vector<std::string> FakeTriton::MetricLines() const {
  std::lock_guard lock(mutex_);
  std::vector<std::string> lines;
  for (const auto& handle : handles_) {
    const auto* metric = dynamic_cast<const TRITONSERVER_Metric*>(handle.get());
    if (metric == nullptr || !metric->alive) continue;
    std::ostringstream line;
    line << metric->family->name << "{";
    const char* separator = "";
    for (const auto& [name, value] : metric->labels) {
      line << separator << name << "=\"" << value << "\"";
      separator = ",";
    }
    line << "} " << *metric->value;
    lines.push_back(line.str());
  }
  std::sort(lines.begin(), lines.end());
  return lines;
}

std::vector<std::string> FakeTriton::log() const {
  std::lock_guard lock(mutex_);
  return log_;
}

std::vector<std::string> FakeTriton::problems() const {
  std::lock_guard lock(mutex_);
  return problems_;
}

std::vector<std::string> FakeTriton::ProblemsAtEnd() const {
  std::lock_guard lock(mutex_);
  std::vector<std::string> problems = problems_;
  for (const auto& handle : handles_) {
    const auto* factory = dynamic_cast<const TRITONBACKEND_ResponseFactory*>(handle.get());
    if (factory == nullptr || factory->final_sent) continue;
    const std::vector<std::string> events = factory->request->call->events();
    if (std::find(events.begin(), events.end(), "release") != events.end()) {
      problems.push_back("a request was released without FINAL");
    }
  }
  const auto leaked = [&](const char* what, int count) {
    if (count != 0) problems.push_back(std::to_string(count) + " " + what + " not given back");
  };
  leaked("requests", CountAlive<TRITONBACKEND_Request>(handles_));
  leaked("response factories", CountAlive<TRITONBACKEND_ResponseFactory>(handles_));
  leaked("responses", CountAlive<TRITONBACKEND_Response>(handles_));
  leaked("errors", CountAlive<TRITONSERVER_Error>(handles_));
  leaked("messages", CountAlive<TRITONSERVER_Message>(handles_));
  leaked("parameters", CountAlive<TRITONSERVER_Parameter>(handles_));
  leaked("metrics", CountAlive<TRITONSERVER_Metric>(handles_));
  leaked("metric families", CountAlive<TRITONSERVER_MetricFamily>(handles_));
  return problems;
}

void FakeTriton::Problem(std::string what) {
  std::lock_guard lock(mutex_);
  problems_.push_back(std::move(what));
}

void FakeTriton::Log(std::string line) {
  std::lock_guard lock(mutex_);
  log_.push_back(std::move(line));
}

TRITONSERVER_Error* FakeTriton::NewError(TRITONSERVER_Error_Code code, std::string text) {
  auto* error = New<TRITONSERVER_Error>();
  error->code = code;
  error->text = std::move(text);
  return error;
}

bool FakeTriton::Check(const char* call, const FakeHandle* handle) {
  std::lock_guard lock(mutex_);
  if (handle != nullptr && handle->alive) return true;
  Problem(std::string(call) + (handle == nullptr ? " with a null handle" : " after the end"));
  return false;
}

std::string TakeText(TRITONSERVER_Error* error) {
  if (error == nullptr) return "";
  const std::string text = TRITONSERVER_ErrorMessage(error);
  TRITONSERVER_ErrorDelete(error);
  return text;
}

}  // namespace seq2seq
