// What the fake's ABI functions begin with.
#ifndef SEQ2SEQ_BACKEND_TESTING_FAKE_TRITON_ABI_CALL_H_
#define SEQ2SEQ_BACKEND_TESTING_FAKE_TRITON_ABI_CALL_H_

#include <mutex>

#include "backend/testing/fake_triton/fake_triton.h"

namespace seq2seq {

// One ABI function's call: holds the fake's lock as long as it lives.
class AbiCall {
 public:
  explicit AbiCall(const char* name)
      : triton_(FakeTriton::Current()), name_(name), lock_(triton_.mutex()) {}

  // Is the handle alive, and are all pointers given? Notes a problem if not.
  template <typename... Pointers>
  bool Allows(const FakeHandle* handle, const Pointers*... pointers) {
    if (!triton_.Check(name_, handle)) return false;
    if (((pointers != nullptr) && ...)) return true;
    triton_.Problem(std::string(name_) + " with a null argument");
    return false;
  }

  FakeTriton& triton() { return triton_; }
  TRITONSERVER_Error* Misused() {
    return triton_.NewError(TRITONSERVER_ERROR_INTERNAL, std::string("misuse of ") + name_);
  }
  TRITONSERVER_Error* Fail(const std::string& why) {
    return triton_.NewError(TRITONSERVER_ERROR_INTERNAL, "scripted: " + why);
  }

 private:
  FakeTriton& triton_;
  const char* name_;
  std::lock_guard<std::recursive_mutex> lock_;
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_TESTING_FAKE_TRITON_ABI_CALL_H_
