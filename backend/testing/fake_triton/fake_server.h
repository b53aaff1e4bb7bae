// Calls the backend's entry points as a server does: loads, infers, unloads.
#ifndef SEQ2SEQ_BACKEND_TESTING_FAKE_TRITON_FAKE_SERVER_H_
#define SEQ2SEQ_BACKEND_TESTING_FAKE_TRITON_FAKE_SERVER_H_

#include <memory>
#include <string>
#include <vector>

#include "backend/testing/fake_triton/fake_triton.h"

namespace seq2seq {

struct FakeInstance {
  TRITONSERVER_InstanceGroupKind kind = TRITONSERVER_INSTANCEGROUPKIND_CPU;
  int32_t device_id = 0;
};

struct FakeModelSetup {
  std::string name = "m";
  std::string config = "{}";
  bool auto_complete = true;
  bool fail_config = false;
  std::vector<FakeInstance> instances = {FakeInstance{}};  // named m_0, m_1, ...
};

// One backend in one fake server. Loading functions return the error's text, empty when it went
// well. Drives from one thread; the requests' fates are looked at from any.
class FakeServer {
 public:
  FakeServer() = default;
  ~FakeServer();  // unloads what is loaded, finalizes the backend

  FakeTriton& triton() { return triton_; }
  TRITONBACKEND_Backend* backend() { return backend_; }  // null unless started

  std::string Start();  // Initialize
  std::string Load(const FakeModelSetup& setup);
  void Unload(const std::string& name);
  // Of a model that was loaded again: the load that came first, which has served until now.
  void UnloadFirst(const std::string& name);
  void Stop();  // Finalize

  // Finalizes one instance of a loaded model, as a server does that is told to keep fewer.
  void RemoveInstance(const std::string& name, int instance);

  // The configuration of a model, as the backend left it; loaded or not.
  std::string config(const std::string& name) const;

  // Sends a request to an instance. `execute_error` receives what Execute returned.
  std::shared_ptr<FakeCall> Infer(const std::string& model, FakeRequest request, int instance = 0,
                                  std::string* execute_error = nullptr);

 private:
  TRITONBACKEND_Model* Find(const std::string& name) const;
  std::string Initialize(TRITONBACKEND_Model* model, const FakeModelSetup& setup);
  void Finalize(TRITONBACKEND_Model* model);
  void Finalize(TRITONBACKEND_ModelInstance* instance);

  FakeTriton triton_;
  TRITONBACKEND_Backend* backend_ = nullptr;
  std::vector<TRITONBACKEND_Model*> models_;  // all that were ever loaded
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_TESTING_FAKE_TRITON_FAKE_SERVER_H_
