#include "backend/triton/request_reader.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "backend/testing/fake_triton/fake_triton.h"

namespace seq2seq {
namespace {

// Device memory that is host memory in truth.
class HostCopier final : public MemoryCopier {
 public:
  Status ToHost(void* destination, const void* source, size_t bytes, int64_t device_id) override {
    devices.push_back(device_id);
    std::memcpy(destination, source, bytes);
    return OkStatus();
  }
  Status ToDevice(void*, const void*, size_t, int64_t) override { return Internal("unused"); }

  std::vector<int64_t> devices;
};

class RequestReaderTest : public ::testing::Test {
 protected:
  Result<ReadRequest> Read(FakeRequest request, MemoryCopier* copier = nullptr) {
    InstanceAccount account(nullptr, copier, nullptr);
    TRITONBACKEND_Request* handle = triton_.NewRequest(std::move(request));
    Result<ReadRequest> read = ReadTritonRequest(handle, account, 77);
    triton_.Withdraw(handle);
    EXPECT_TRUE(triton_.ProblemsAtEnd().empty());
    return read;
  }

  void ExpectInvalid(FakeRequest request, const std::string& part) {
    const Result<ReadRequest> read = Read(std::move(request));
    ASSERT_FALSE(read) << part;
    EXPECT_EQ(read.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(read.error().message.find(part), std::string::npos) << read.error().message;
  }

  FakeTriton triton_;
};

TEST_F(RequestReaderTest, ReadsIdsParametersTimeoutAndOutputs) {
  FakeRequest request;
  request.inputs = {MakeIds("input_ids", {1, -2, 3}), MakeIds("decoder_input_ids", {9})};
  request.parameters = {
      {"id", std::string("abc")}, {"top_k", int64_t{5}}, {"stream", false}, {"temperature", 0.5}};
  request.timeout_us = 1234;
  request.outputs = {"logprobs"};
  const Result<ReadRequest> read = Read(request);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->raw.input_ids, (std::vector<int32_t>{1, -2, 3}));
  EXPECT_EQ(read->raw.decoder_input_ids, std::vector<int32_t>{9});
  const std::vector<std::pair<std::string, OptionValue>> options = {
      {"id", std::string("abc")}, {"top_k", int64_t{5}}, {"stream", false}, {"temperature", 0.5}};
  EXPECT_EQ(read->raw.options, options);
  EXPECT_EQ(read->raw.timeout_us, 1234U);
  EXPECT_EQ(read->raw.arrival_ns, 77);
  EXPECT_FALSE(read->outputs.output_ids);
  EXPECT_TRUE(read->outputs.logprobs);
}

TEST_F(RequestReaderTest, AbsentAndEmptyTensorsDiffer) {
  FakeRequest request;
  request.inputs = {MakeIds("input_ids", {})};
  const Result<ReadRequest> read = Read(request);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->raw.input_ids, std::vector<int32_t>{});
  EXPECT_FALSE(read->raw.decoder_input_ids);
}

TEST_F(RequestReaderTest, JoinsBuffersThatEndWithinAnElement) {
  const std::vector<int32_t> ids = {100000, 2, -3, 400, 5};
  FakeRequest request;
  request.inputs = {MakeIds("input_ids", ids, 7)};
  request.inputs[0].buffers[2].memory = TRITONSERVER_MEMORY_CPU_PINNED;
  const Result<ReadRequest> read = Read(request);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->raw.input_ids, ids);
}

TEST_F(RequestReaderTest, DeviceMemoryNeedsACopier) {
  FakeRequest request;
  request.inputs = {MakeIds("input_ids", {4, 5, 6}, 2)};
  request.inputs[0].buffers[1].memory = TRITONSERVER_MEMORY_GPU;
  request.inputs[0].buffers[1].memory_id = 2;
  HostCopier copier;
  const Result<ReadRequest> read = Read(request, &copier);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->raw.input_ids, (std::vector<int32_t>{4, 5, 6}));
  EXPECT_EQ(copier.devices, std::vector<int64_t>{2});

  const Result<ReadRequest> refused = Read(request);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(refused.error().message.find("GPU 2"), std::string::npos);
}

TEST_F(RequestReaderTest, StrangeInputsAreInvalid) {
  FakeRequest request;
  request.inputs = {MakeIds("text", {1})};
  ExpectInvalid(request, "unknown input 'text'");

  request.inputs = {MakeIds("input_ids", {1}), MakeIds("input_ids", {1})};
  ExpectInvalid(request, "second input 'input_ids'");

  request.inputs = {MakeIds("input_ids", {1})};
  request.inputs[0].type = TRITONSERVER_TYPE_INT64;
  ExpectInvalid(request, "must be INT32");

  request.inputs = {MakeIds("input_ids", {1})};
  request.inputs[0].announced_bytes = 3;
  ExpectInvalid(request, "must be INT32");

  request.inputs = {MakeIds("input_ids", {1, 2})};
  request.inputs[0].announced_bytes = 4;
  ExpectInvalid(request, "does not hold the 4 bytes");

  request.inputs = {MakeIds("input_ids", {1, 2})};
  request.inputs[0].announced_bytes = 16;
  ExpectInvalid(request, "holds 8 bytes of the 16");

  request.inputs = {MakeIds("input_ids", {1, 2})};
  request.faults.fail_inputs = true;
  ExpectInvalid(request, "can't be read");
}

TEST_F(RequestReaderTest, ParametersOfAnotherTypeAreInvalid) {
  FakeRequest request;
  request.inputs = {MakeIds("input_ids", {1})};
  request.parameters = {{"top_k", FakeBytes{}}};
  ExpectInvalid(request, "option 'top_k' must be a string, an integer, a boolean or a double");
}

}  // namespace
}  // namespace seq2seq
