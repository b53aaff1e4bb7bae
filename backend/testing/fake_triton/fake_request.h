// Requests as a client sends them, and responses as it gets them.
#ifndef SEQ2SEQ_BACKEND_TESTING_FAKE_TRITON_FAKE_REQUEST_H_
#define SEQ2SEQ_BACKEND_TESTING_FAKE_TRITON_FAKE_REQUEST_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "backend/triton/triton_abi.h"

namespace seq2seq {

struct FakeBuffer {
  std::vector<std::byte> bytes;
  TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
  int64_t memory_id = 0;
};

struct FakeInput {
  std::string name;
  TRITONSERVER_DataType type = TRITONSERVER_TYPE_INT32;
  std::vector<int64_t> shape;
  uint64_t announced_bytes = 0;
  std::vector<FakeBuffer> buffers;
};

// An INT32 tensor in `pieces` host buffers, which need not end between two elements.
FakeInput MakeIds(const std::string& name, const std::vector<int32_t>& ids, size_t pieces = 1);

struct FakeBytes {};  // a parameter of a type that the backend does not know
using FakeParameterValue = std::variant<std::string, int64_t, bool, double, FakeBytes>;

// Which of a request's calls go wrong, by their number from 0.
struct FakeFaults {
  bool fail_factory = false;
  bool fail_inputs = false;
  std::set<int> fail_new_response = {};
  std::set<int> fail_output_buffer = {};
  std::set<int> gpu_output_buffer = {};  // given in the memory of GPU 3
  std::set<int> fail_send = {};          // nothing arrives
  std::set<int> block_send = {};         // until FakeCall::Unblock()
  bool fail_send_flags = false;
};

struct FakeRequest {
  std::vector<FakeInput> inputs;
  std::vector<std::pair<std::string, FakeParameterValue>> parameters;
  std::vector<std::string> outputs = {"output_ids", "logprobs"};
  uint64_t timeout_us = 0;
  FakeFaults faults;
};

struct FakeResponse {
  std::optional<std::vector<int32_t>> output_ids;
  std::optional<std::vector<float>> logprobs;
  std::map<std::string, std::variant<std::string, int64_t>> parameters;
  std::optional<TRITONSERVER_Error_Code> error_code;
  std::string error_text;
  bool final = false;
  bool bare = false;      // flags alone, without a response
  int64_t called_ns = 0;  // steady clock, when the send was called
  int64_t returned_ns = 0;
};

struct FakeStatistics {
  bool success = false;
  uint64_t exec_start_ns = 0;
  uint64_t compute_end_ns = 0;
  uint64_t exec_end_ns = 0;
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_TESTING_FAKE_TRITON_FAKE_REQUEST_H_
