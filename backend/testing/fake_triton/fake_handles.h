// What the opaque handles of triton_abi.h are in the fake.
#ifndef SEQ2SEQ_BACKEND_TESTING_FAKE_TRITON_FAKE_HANDLES_H_
#define SEQ2SEQ_BACKEND_TESTING_FAKE_TRITON_FAKE_HANDLES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/testing/fake_triton/fake_call.h"
#include "backend/testing/fake_triton/fake_request.h"
#include "backend/triton/triton_abi.h"

namespace seq2seq {

// Handles are kept as long as their FakeTriton, dead or alive, so that use after the end is
// noticed.
struct FakeHandle {
  virtual ~FakeHandle() = default;
  bool alive = true;
};

}  // namespace seq2seq

struct TRITONSERVER_Error : seq2seq::FakeHandle {
  TRITONSERVER_Error_Code code = TRITONSERVER_ERROR_UNKNOWN;
  std::string text;
};

struct TRITONSERVER_Message : seq2seq::FakeHandle {
  std::string json;
};

struct TRITONSERVER_Parameter : seq2seq::FakeHandle {
  std::string name;
  std::string value;
};

struct TRITONSERVER_MetricFamily : seq2seq::FakeHandle {
  TRITONSERVER_MetricKind kind = TRITONSERVER_METRIC_KIND_COUNTER;
  std::string name;
};

struct TRITONSERVER_Metric : seq2seq::FakeHandle {
  TRITONSERVER_MetricFamily* family = nullptr;
  std::map<std::string, std::string> labels;
  std::shared_ptr<double> value;  // of all that live and have these labels, as the server has it
};

struct TRITONBACKEND_Backend : seq2seq::FakeHandle {
  void* state = nullptr;
};

struct TRITONBACKEND_BackendAttribute : seq2seq::FakeHandle {
  std::vector<TRITONSERVER_InstanceGroupKind> preferred_groups;
  bool parallel_loading = false;
};

struct TRITONBACKEND_Model : seq2seq::FakeHandle {
  TRITONBACKEND_Backend* backend = nullptr;
  std::string name;
  uint64_t version = 1;
  std::string repository;
  std::string config;
  bool auto_complete = true;
  bool fail_config = false;
  void* state = nullptr;
  std::vector<TRITONBACKEND_ModelInstance*> instances;
};

struct TRITONBACKEND_ModelInstance : seq2seq::FakeHandle {
  TRITONBACKEND_Model* model = nullptr;
  std::string name;
  TRITONSERVER_InstanceGroupKind kind = TRITONSERVER_INSTANCEGROUPKIND_CPU;
  int32_t device_id = 0;
  void* state = nullptr;
};

struct TRITONBACKEND_Input : seq2seq::FakeHandle {
  TRITONBACKEND_Request* request = nullptr;
  seq2seq::FakeInput data;
};

struct TRITONBACKEND_Request : seq2seq::FakeHandle {
  std::shared_ptr<seq2seq::FakeCall> call;
  seq2seq::FakeRequest data;
  std::vector<TRITONBACKEND_Input*> inputs;
  TRITONBACKEND_ResponseFactory* factory = nullptr;
};

struct TRITONBACKEND_ResponseFactory : seq2seq::FakeHandle {
  TRITONBACKEND_Request* request = nullptr;
  bool final_sent = false;
  int responses_made = 0;
  int buffers_given = 0;
  int sends = 0;
};

struct TRITONBACKEND_Output : seq2seq::FakeHandle {
  TRITONBACKEND_Response* response = nullptr;
  std::string name;
  TRITONSERVER_DataType type = TRITONSERVER_TYPE_INVALID;
  int64_t elements = 0;
  std::vector<std::byte> bytes;
  bool has_buffer = false;
};

struct TRITONBACKEND_Response : seq2seq::FakeHandle {
  TRITONBACKEND_ResponseFactory* factory = nullptr;
  std::vector<TRITONBACKEND_Output*> outputs;
  std::map<std::string, std::variant<std::string, int64_t>> parameters;
};

#endif  // SEQ2SEQ_BACKEND_TESTING_FAKE_TRITON_FAKE_HANDLES_H_
