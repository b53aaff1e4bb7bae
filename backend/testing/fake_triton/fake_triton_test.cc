// A fake that overlooks misuse would make other tests worthless: each kind is committed here.
#include "backend/testing/fake_triton/fake_triton.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace seq2seq {
namespace {

class FakeTritonTest : public ::testing::Test {
 protected:
  void SetUp() override {
    request_ = triton_.NewRequest({});
    ASSERT_EQ(TakeText(TRITONBACKEND_ResponseFactoryNew(&factory_, request_)), "");
  }

  TRITONBACKEND_Response* NewResponse() {
    TRITONBACKEND_Response* response = nullptr;
    EXPECT_EQ(TakeText(TRITONBACKEND_ResponseNewFromFactory(&response, factory_)), "");
    return response;
  }
  void Send(uint32_t flags, TRITONSERVER_Error* error = nullptr) {
    TakeText(TRITONBACKEND_ResponseSend(NewResponse(), flags, error));
  }
  void GiveBack() {
    TakeText(TRITONBACKEND_RequestRelease(request_, TRITONSERVER_REQUEST_RELEASE_ALL));
    TakeText(TRITONBACKEND_ResponseFactoryDelete(factory_));
  }

  FakeTriton triton_;
  TRITONBACKEND_Request* request_ = nullptr;
  TRITONBACKEND_ResponseFactory* factory_ = nullptr;
};

using Problems = std::vector<std::string>;

TEST_F(FakeTritonTest, GoodConductIsNoProblem) {
  Send(0);
  Send(TRITONSERVER_RESPONSE_COMPLETE_FINAL);
  GiveBack();
  EXPECT_EQ(triton_.ProblemsAtEnd(), Problems{});
}

TEST_F(FakeTritonTest, SendAfterFinal) {
  Send(TRITONSERVER_RESPONSE_COMPLETE_FINAL);
  Send(0);
  EXPECT_EQ(triton_.problems(), Problems{"a response was sent after FINAL"});
}

TEST_F(FakeTritonTest, FinalTwice) {
  Send(TRITONSERVER_RESPONSE_COMPLETE_FINAL);
  TakeText(TRITONBACKEND_ResponseFactorySendFlags(factory_, TRITONSERVER_RESPONSE_COMPLETE_FINAL));
  EXPECT_EQ(triton_.problems(), Problems{"FINAL was sent twice"});
}

TEST_F(FakeTritonTest, ReleasedWithoutFinal) {
  Send(0);
  GiveBack();
  EXPECT_EQ(triton_.ProblemsAtEnd(), Problems{"a request was released without FINAL"});
}

TEST_F(FakeTritonTest, ReleasedUnanswered) {
  GiveBack();
  EXPECT_EQ(triton_.ProblemsAtEnd(), Problems{"a request was released without FINAL"});
}

TEST_F(FakeTritonTest, AnErrorWithoutFinal) {
  TRITONSERVER_Error* error = TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, "x");
  Send(0, error);
  TRITONSERVER_ErrorDelete(error);
  EXPECT_EQ(triton_.problems(), Problems{"an error was sent without FINAL"});
}

TEST_F(FakeTritonTest, ReleasedTwice) {
  Send(TRITONSERVER_RESPONSE_COMPLETE_FINAL);
  GiveBack();
  GiveBack();
  EXPECT_EQ(triton_.ProblemsAtEnd(),
            (Problems{"RequestRelease after the end", "ResponseFactoryDelete after the end"}));
}

TEST_F(FakeTritonTest, UseAfterRelease) {
  Send(TRITONSERVER_RESPONSE_COMPLETE_FINAL);
  GiveBack();
  uint32_t count = 0;
  bool cancelled = false;
  TakeText(TRITONBACKEND_RequestInputCount(request_, &count));
  TakeText(TRITONBACKEND_ResponseFactoryIsCancelled(factory_, &cancelled));
  EXPECT_EQ(triton_.problems(), (Problems{"RequestInputCount after the end",
                                          "ResponseFactoryIsCancelled after the end"}));
}

TEST_F(FakeTritonTest, LeaksAreCounted) {
  NewResponse();
  TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, "x");
  TRITONSERVER_Message* message = nullptr;
  TakeText(TRITONSERVER_MessageNewFromSerializedJson(&message, "{}", 2));
  TRITONSERVER_MetricFamily* family = nullptr;
  TakeText(TRITONSERVER_MetricFamilyNew(&family, TRITONSERVER_METRIC_KIND_GAUGE, "f", "d"));
  const TRITONSERVER_Parameter* label =
      TRITONSERVER_ParameterNew("l", TRITONSERVER_PARAMETER_STRING, "v");
  TRITONSERVER_Metric* metric = nullptr;
  TakeText(TRITONSERVER_MetricNew(&metric, family, &label, 1));
  EXPECT_EQ(triton_.ProblemsAtEnd(),
            (Problems{"1 requests not given back", "1 response factories not given back",
                      "1 responses not given back", "1 errors not given back",
                      "1 messages not given back", "1 parameters not given back",
                      "1 metrics not given back", "1 metric families not given back"}));
}

TEST_F(FakeTritonTest, AFamilyGoneBeforeItsMetric) {
  TRITONSERVER_MetricFamily* family = nullptr;
  TakeText(TRITONSERVER_MetricFamilyNew(&family, TRITONSERVER_METRIC_KIND_GAUGE, "f", "d"));
  const TRITONSERVER_Parameter* no_labels[1] = {};
  TRITONSERVER_Metric* metric = nullptr;
  TakeText(TRITONSERVER_MetricNew(&metric, family, no_labels, 0));
  TakeText(TRITONSERVER_MetricFamilyDelete(family));
  TakeText(TRITONSERVER_MetricDelete(metric));
  EXPECT_EQ(triton_.problems(), Problems{"MetricDelete after the end"});
}

TEST_F(FakeTritonTest, NullArguments) {
  TakeText(TRITONBACKEND_RequestRelease(nullptr, TRITONSERVER_REQUEST_RELEASE_ALL));
  TakeText(TRITONBACKEND_RequestInputCount(request_, nullptr));
  EXPECT_EQ(triton_.problems(), (Problems{"RequestRelease with a null handle",
                                          "RequestInputCount with a null argument"}));
}

TEST_F(FakeTritonTest, OutputsWithoutBufferOrOfAnotherSize) {
  TRITONBACKEND_Response* response = NewResponse();
  TRITONBACKEND_Output* output = nullptr;
  const int64_t shape = 2;
  TakeText(TRITONBACKEND_ResponseOutput(response, &output, "output_ids", TRITONSERVER_TYPE_INT32,
                                        &shape, 1));
  void* buffer = nullptr;
  TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_CPU;
  int64_t id = 0;
  TakeText(TRITONBACKEND_OutputBuffer(output, &buffer, 4, &type, &id));
  TakeText(TRITONBACKEND_ResponseOutput(response, &output, "logprobs", TRITONSERVER_TYPE_FP32,
                                        &shape, 1));
  TakeText(TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, nullptr));
  EXPECT_EQ(triton_.problems(), (Problems{"OutputBuffer of another size than the shape's",
                                          "an output was sent without a buffer"}));
}

TEST_F(FakeTritonTest, StatisticsOutOfOrder) {
  auto* model = triton_.NewModel(triton_.NewBackend(), "m", "{}");
  auto* instance = triton_.NewInstance(model, "i", TRITONSERVER_INSTANCEGROUPKIND_CPU, 0);
  TakeText(TRITONBACKEND_ModelInstanceReportStatistics(instance, request_, true, 2, 1, 3, 4));
  EXPECT_EQ(triton_.problems(), Problems{"ModelInstanceReportStatistics with times out of order"});
}

}  // namespace
}  // namespace seq2seq
