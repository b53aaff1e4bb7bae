// Stream, sender and writer together, over the fake Triton.
#include "backend/triton/response_stream.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "backend/testing/fake_triton/fake_triton.h"
#include "backend/triton/metric_families.h"

namespace seq2seq {
namespace {

constexpr int64_t kMs = 1'000'000;

class HostCopier final : public MemoryCopier {
 public:
  Status ToHost(void*, const void*, size_t, int64_t) override { return Internal("unused"); }
  Status ToDevice(void* destination, const void* source, size_t bytes, int64_t device_id) override {
    if (device_id != 3) return Internal("another device");
    std::memcpy(destination, source, bytes);
    return OkStatus();
  }
};

class ResponseStreamTest : public ::testing::Test {
 protected:
  struct Client {
    std::shared_ptr<FakeCall> call;
    std::unique_ptr<ResponseStream> sink;
  };

  void SetUp() override { Create(nullptr, 2); }

  void TearDown() override {
    sender_.reset();
    account_->Detach();
    account_.reset();
    metrics_.reset();
    gauge_.reset();
    families_.reset();
    EXPECT_EQ(triton_.ProblemsAtEnd(), std::vector<std::string>{});
  }

  void Create(MemoryCopier* copier, int threads) {
    families_ = std::make_unique<MetricFamilies>();
    queue_ = std::make_unique<RequestQueue>(1);
    gauge_ = std::make_shared<QueueGauge>(Metric(), queue_.get());
    metrics_ = std::make_shared<InstanceMetrics>(*families_, InstanceLabels{"m", "1", "i"}, gauge_);
    auto* model = triton_.NewModel(triton_.NewBackend(), "m", "{}");
    auto* instance = triton_.NewInstance(model, "i", TRITONSERVER_INSTANCEGROUPKIND_CPU, 0);
    account_ = std::make_shared<InstanceAccount>(instance, copier, metrics_);
    sender_ = std::make_unique<ResponseSender>(&clock_, threads);
  }

  static StreamSettings Settings() {
    StreamSettings settings;
    settings.outputs = {.output_ids = true, .logprobs = true};
    settings.max_new_tokens = 100;
    settings.prompt_tokens = 7;
    return settings;
  }

  Client Open(const FakeFaults& faults = {}, const StreamSettings& settings = Settings()) {
    FakeRequest request;
    request.faults = faults;
    TRITONBACKEND_Request* handle = triton_.NewRequest(std::move(request));
    Client client;
    client.call = handle->call;
    Result<std::unique_ptr<ResponseWriter>> writer = ResponseWriter::Open(handle, account_);
    EXPECT_TRUE(writer);
    auto stream = std::make_shared<OutgoingStream>(*std::move(writer), clock_.NowNs());
    stream->Configure(settings);
    client.sink = std::make_unique<ResponseStream>(std::move(stream), sender_.get());
    return client;
  }

  double Requests(const char* outcome) {
    return triton_.MetricValue("seq2seq_requests_total", {{"outcome", outcome}});
  }

  SteadyClock clock_;
  FakeTriton triton_;
  HostCopier copier_;
  std::unique_ptr<MetricFamilies> families_;
  std::unique_ptr<RequestQueue> queue_;
  std::shared_ptr<QueueGauge> gauge_;
  std::shared_ptr<InstanceMetrics> metrics_;
  std::shared_ptr<InstanceAccount> account_;
  std::unique_ptr<ResponseSender> sender_;
};

TEST_F(ResponseStreamTest, StreamsTokensAndEndsWithEverythingGivenBack) {
  Client client = Open();
  client.sink->Append(11, -0.5F);
  ASSERT_TRUE(client.call->WaitResponses(1));
  client.sink->Append(12, -0.25F);
  client.sink->Finish(FinishReason::kEos);
  ASSERT_TRUE(client.call->WaitFinished());

  EXPECT_EQ(client.call->tokens(), (std::vector<int32_t>{11, 12}));
  const std::vector<FakeResponse> responses = client.call->responses();
  EXPECT_EQ(responses[0].output_ids, std::vector<int32_t>{11});
  EXPECT_EQ(responses[0].logprobs, std::vector<float>{});  // not asked for by the option
  EXPECT_TRUE(responses[0].parameters.empty());
  const std::map<std::string, std::variant<std::string, int64_t>> expected = {
      {"finish_reason", "eos"}, {"prompt_tokens", int64_t{7}}, {"completion_tokens", int64_t{2}}};
  EXPECT_EQ(client.call->last().parameters, expected);
  const std::vector<std::string> events = client.call->events();
  ASSERT_GE(events.size(), 5U);
  EXPECT_EQ(std::vector<std::string>(events.end() - 4, events.end()),
            (std::vector<std::string>{"send FINAL", "report", "release", "delete factory"}));
  const std::vector<FakeStatistics> statistics = client.call->statistics();
  ASSERT_EQ(statistics.size(), 1U);
  EXPECT_TRUE(statistics[0].success);
  EXPECT_GT(statistics[0].exec_start_ns, 0U);
  EXPECT_EQ(Requests("ok"), 1);
}

TEST_F(ResponseStreamTest, TheLastTokenLeavesWithTheEnd) {
  // Many times: a sender thread that woke up in between would have sent the token alone.
  for (int round = 0; round < 100; ++round) {
    Client client = Open();
    client.sink->Append(11, 0);
    ASSERT_TRUE(client.call->WaitResponses(1));
    client.sink->AppendLast(12, 0, FinishReason::kLength);
    ASSERT_TRUE(client.call->WaitFinished());
    const std::vector<FakeResponse> responses = client.call->responses();
    ASSERT_EQ(responses.size(), 2U);
    EXPECT_EQ(responses[1].output_ids, std::vector<int32_t>{12});
    EXPECT_EQ(std::get<int64_t>(responses[1].parameters.at("completion_tokens")), 2);
    EXPECT_EQ(std::get<std::string>(responses[1].parameters.at("finish_reason")), "length");
  }
}

TEST_F(ResponseStreamTest, LogprobsAndSeedWhereAskedFor) {
  StreamSettings settings = Settings();
  settings.return_logprobs = true;
  settings.stream = false;
  settings.seed = 42;
  Client client = Open({}, settings);
  client.sink->Append(11, -0.5F);
  client.sink->Append(12, -0.25F);
  client.sink->Finish(FinishReason::kLength);
  ASSERT_TRUE(client.call->WaitFinished());
  ASSERT_EQ(client.call->responses().size(), 1U);
  const FakeResponse response = client.call->last();
  EXPECT_EQ(response.output_ids, (std::vector<int32_t>{11, 12}));
  EXPECT_EQ(response.logprobs, (std::vector<float>{-0.5F, -0.25F}));
  EXPECT_EQ(std::get<int64_t>(response.parameters.at("seed")), 42);
  EXPECT_EQ(std::get<std::string>(response.parameters.at("finish_reason")), "length");
}

TEST_F(ResponseStreamTest, OnlyOutputsAskedForAreSent) {
  StreamSettings settings = Settings();
  settings.outputs = {.output_ids = true, .logprobs = false};
  Client client = Open({}, settings);
  client.sink->Finish(FinishReason::kEos);
  ASSERT_TRUE(client.call->WaitFinished());
  EXPECT_EQ(client.call->last().output_ids, std::vector<int32_t>{});
  EXPECT_FALSE(client.call->last().logprobs);
}

TEST_F(ResponseStreamTest, ResponsesKeepTheirDistance) {
  StreamSettings settings = Settings();
  settings.interval_ns = 20 * kMs;
  Client client = Open({}, settings);
  client.sink->Append(1, 0);
  ASSERT_TRUE(client.call->WaitResponses(1));
  client.sink->Append(2, 0);
  client.sink->Append(3, 0);
  ASSERT_TRUE(client.call->WaitResponses(2));
  client.sink->Append(4, 0);
  client.sink->Finish(FinishReason::kEos);
  ASSERT_TRUE(client.call->WaitFinished());
  const std::vector<FakeResponse> responses = client.call->responses();
  ASSERT_EQ(responses.size(), 3U);
  EXPECT_EQ(responses[1].output_ids, (std::vector<int32_t>{2, 3}));
  EXPECT_EQ(responses[2].output_ids, std::vector<int32_t>{4});
  for (size_t i = 1; i < responses.size(); ++i) {
    EXPECT_GE(responses[i].called_ns - responses[i - 1].returned_ns, 20 * kMs);
  }
}

TEST_F(ResponseStreamTest, AnErrorOvertakesTheInterval) {
  StreamSettings settings = Settings();
  settings.interval_ns = 3'600'000 * kMs;
  Client client = Open({}, settings);
  client.sink->Append(1, 0);
  ASSERT_TRUE(client.call->WaitResponses(1));
  client.sink->Append(2, 0);
  client.sink->Fail(Error{ErrorCode::kCancelled, "gone"});
  ASSERT_TRUE(client.call->WaitFinished());
  EXPECT_EQ(client.call->tokens(), std::vector<int32_t>{1});
  EXPECT_EQ(client.call->last().error_code, TRITONSERVER_ERROR_CANCELLED);
  EXPECT_EQ(client.call->last().error_text, "CANCELLED: gone");
  EXPECT_EQ(Requests("cancelled"), 1);
  EXPECT_FALSE(client.call->statistics().at(0).success);
}

TEST_F(ResponseStreamTest, ABlockedReaderHoldsUpItselfAlone) {
  Client blocked = Open({.block_send = {0}});
  blocked.sink->Append(1, 0);
  ASSERT_TRUE(blocked.call->WaitSendsBegun(1));
  for (int32_t token = 2; token <= 50; ++token) blocked.sink->Append(token, 0);
  for (int i = 0; i < 20; ++i) {
    Client other = Open();
    other.sink->Append(5, 0);
    other.sink->Finish(FinishReason::kEos);
    ASSERT_TRUE(other.call->WaitFinished());
  }
  EXPECT_TRUE(blocked.call->responses().empty());
  blocked.call->Unblock();
  ASSERT_TRUE(blocked.call->WaitResponses(2));
  EXPECT_EQ(blocked.call->responses()[1].output_ids->size(), 49U);  // all that came meanwhile
  blocked.sink->Finish(FinishReason::kEos);
  ASSERT_TRUE(blocked.call->WaitFinished());
}

TEST_F(ResponseStreamTest, IntervalsRunWhileASenderIsBlocked) {
  Client blocked = Open({.block_send = {0}});
  StreamSettings settings = Settings();
  settings.interval_ns = 2 * kMs;
  Client paced = Open({}, settings);
  paced.sink->Append(1, 0);
  ASSERT_TRUE(paced.call->WaitResponses(1));
  blocked.sink->Append(1, 0);
  ASSERT_TRUE(blocked.call->WaitSendsBegun(1));
  paced.sink->Append(2, 0);
  paced.sink->Finish(FinishReason::kEos);
  EXPECT_TRUE(paced.call->WaitFinished());
  blocked.call->Unblock();
  blocked.sink->Finish(FinishReason::kEos);
  EXPECT_TRUE(blocked.call->WaitFinished());
}

TEST_F(ResponseStreamTest, ADroppedSinkFailsItself) {
  Client client = Open();
  client.sink.reset();
  ASSERT_TRUE(client.call->WaitFinished());
  EXPECT_EQ(client.call->last().error_text, "INTERNAL: the request was dropped unanswered");
  EXPECT_EQ(Requests("failed"), 1);
}

TEST_F(ResponseStreamTest, CallsAfterTheEndDoNothing) {
  Client client = Open();
  client.sink->Finish(FinishReason::kEos);
  client.sink->Append(1, 0);
  client.sink->Fail(Error{});
  ASSERT_TRUE(client.call->WaitFinished());
  client.sink->Finish(FinishReason::kLength);
  client.sink.reset();
  EXPECT_EQ(client.call->responses().size(), 1U);
}

TEST_F(ResponseStreamTest, CancellationIsStickyAndAnEndedStreamCountsAsCancelled) {
  Client client = Open();
  EXPECT_FALSE(client.sink->IsCancelled());
  client.call->Cancel();
  EXPECT_TRUE(client.sink->IsCancelled());
  client.sink->Fail(Error{ErrorCode::kCancelled, "x"});
  ASSERT_TRUE(client.call->WaitFinished());
  EXPECT_TRUE(client.sink->IsCancelled());

  Client ended = Open();
  ended.sink->Finish(FinishReason::kEos);
  ASSERT_TRUE(ended.call->WaitFinished());
  EXPECT_TRUE(ended.sink->IsCancelled());
}

TEST_F(ResponseStreamTest, AFailedSendEndsTheStreamWithAnError) {
  Client client = Open({.fail_send = {1}});
  client.sink->Append(1, 0);
  ASSERT_TRUE(client.call->WaitResponses(1));
  client.sink->Append(2, 0);
  ASSERT_TRUE(client.call->WaitFinished());
  EXPECT_EQ(client.call->last().error_text, "INTERNAL: scripted: a response is not sent");
  EXPECT_TRUE(client.sink->IsCancelled());  // so that the scheduler lets go of it
  client.sink->Append(3, 0);
  client.sink->Fail(Error{ErrorCode::kCancelled, "x"});
  EXPECT_EQ(Requests("failed"), 1);
}

TEST_F(ResponseStreamTest, AFailedFinalSendIsNotRepeated) {
  Client client = Open({.fail_send = {0}});
  client.sink->Finish(FinishReason::kEos);
  client.sink.reset();
  sender_.reset();
  EXPECT_TRUE(client.call->responses().empty());
  EXPECT_EQ(client.call->events(),
            (std::vector<std::string>{"report", "release", "delete factory"}));
  ASSERT_EQ(triton_.log().size(), 1U);
  EXPECT_NE(triton_.log()[0].find("sending a FINAL response failed"), std::string::npos);
}

TEST_F(ResponseStreamTest, WithoutAResponseObjectABareFinalEndsTheStream) {
  Client client = Open({.fail_new_response = {0, 1}});
  client.sink->Append(1, 0);
  ASSERT_TRUE(client.call->WaitFinished());
  EXPECT_TRUE(client.call->last().bare);
  EXPECT_EQ(client.call->responses().size(), 1U);
}

TEST_F(ResponseStreamTest, ARefusedBufferFailsThatRequestAlone) {
  Client good = Open();
  Client bad = Open({.fail_output_buffer = {1}});  // the logprobs' buffer
  bad.sink->Append(1, 0);
  good.sink->Append(1, 0);
  ASSERT_TRUE(bad.call->WaitFinished());
  EXPECT_EQ(bad.call->last().error_text, "INTERNAL: scripted: no output buffer");
  good.sink->Finish(FinishReason::kEos);
  ASSERT_TRUE(good.call->WaitFinished());
  EXPECT_FALSE(good.call->last().error_code);
}

TEST_F(ResponseStreamTest, DeviceBuffersWithoutACopierAreUnsupported) {
  Client client = Open({.gpu_output_buffer = {0}});
  client.sink->Append(1, 0);
  ASSERT_TRUE(client.call->WaitFinished());
  EXPECT_EQ(client.call->last().error_code, TRITONSERVER_ERROR_UNSUPPORTED);
  EXPECT_EQ(Requests("invalid"), 1);
}

TEST_F(ResponseStreamTest, DeviceBuffersAreFilledByTheCopier) {
  TearDown();
  Create(&copier_, 2);
  Client client = Open({.gpu_output_buffer = {0}});
  client.sink->Append(31, 0);
  ASSERT_TRUE(client.call->WaitResponses(1));
  EXPECT_EQ(client.call->tokens(), std::vector<int32_t>{31});
  client.sink->Finish(FinishReason::kEos);
  ASSERT_TRUE(client.call->WaitFinished());
}

TEST_F(ResponseStreamTest, ADetachedInstanceIsNotReportedTo) {
  Client client = Open();
  account_->Detach();
  client.sink->Finish(FinishReason::kEos);
  ASSERT_TRUE(client.call->WaitFinished());
  EXPECT_TRUE(client.call->statistics().empty());
  EXPECT_EQ(Requests("ok"), 1);
}

TEST_F(ResponseStreamTest, TheSenderSendsEverythingBeforeItGoes) {
  StreamSettings settings = Settings();
  settings.interval_ns = 3'600'000 * kMs;
  std::vector<std::shared_ptr<FakeCall>> calls;
  for (int i = 0; i < 50; ++i) {
    Client client = Open({}, settings);
    client.sink->Append(i, 0);
    if (i % 2 == 0) client.sink->Finish(FinishReason::kEos);
    calls.push_back(client.call);
  }
  sender_.reset();
  for (const auto& call : calls) EXPECT_TRUE(call->finished());
}

TEST_F(ResponseStreamTest, ManyStreamsFromManyThreadsAreEachComplete) {
  constexpr int kThreads = 4;
  constexpr int kStreams = 40;
  std::vector<std::thread> threads;
  std::vector<std::vector<std::shared_ptr<FakeCall>>> calls(kThreads);
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([this, t, &calls] {
      for (int i = 0; i < kStreams; ++i) {
        StreamSettings settings = Settings();
        settings.interval_ns = (i % 3) * kMs / 2;
        Client client = Open({}, settings);
        for (int32_t token = 0; token < 100; ++token) {
          client.sink->Append(token, 0);
          EXPECT_FALSE(client.sink->IsCancelled());
        }
        client.sink->Finish(FinishReason::kLength);
        calls[t].push_back(client.call);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<int32_t> expected(100);
  for (int32_t i = 0; i < 100; ++i) expected[i] = i;
  for (const auto& of_thread : calls) {
    for (const auto& call : of_thread) {
      ASSERT_TRUE(call->WaitFinished());
      EXPECT_EQ(call->tokens(), expected);
      EXPECT_EQ(std::get<int64_t>(call->last().parameters.at("completion_tokens")), 100);
    }
  }
}

}  // namespace
}  // namespace seq2seq
