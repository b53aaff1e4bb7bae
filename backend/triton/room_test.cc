// The whole room as a server uses it: entry points, queue, scheduler, senders, over the fake Triton
// and the fake engine. The contract's rows of "what happens" are here.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "backend/testing/fake_clock.h"
#include "backend/testing/fake_tokens.h"
#include "backend/testing/fake_triton/fake_server.h"
#include "backend/testing/room_environment.h"

namespace seq2seq {
namespace {

std::string Parameter(const std::string& key, const std::string& value) {
  return "\"" + key + "\":{\"string_value\":\"" + value + "\"}";
}

std::string Config(const std::string& parameters) {
  return "{\"parameters\":{" + parameters + "}}";
}

FakeRequest Ids(const std::vector<int32_t>& ids, int64_t max_new_tokens = 4) {
  FakeRequest request;
  request.inputs = {MakeIds("input_ids", ids)};
  request.parameters = {{"max_new_tokens", max_new_tokens}, {"response_interval_ms", 0.0}};
  return request;
}

FakeRequest With(FakeRequest request, const std::string& key, FakeParameterValue value) {
  request.parameters.emplace_back(key, std::move(value));
  return request;
}

// Polls something that has no condition variable of its own.
template <typename Condition>
bool Eventually(Condition condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

class RoomTest : public ::testing::Test {
 protected:
  void Start(const FakeEngineOptions& engine = {}, const FakeModelSetup& setup = {}) {
    room_ = std::make_unique<RoomEnvironment>(engine);
    room_->UseClock(clock_);
    ASSERT_EQ(server_.Start(), "");
    ASSERT_EQ(server_.Load(setup), "");
  }

  void TearDown() override {
    server_.Unload("m");
    server_.Stop();
    EXPECT_EQ(server_.triton().ProblemsAtEnd(), std::vector<std::string>{});
    if (room_ != nullptr) {
      EXPECT_EQ(room_->engines().violations(), std::vector<std::string>{});
    }
  }

  FakeEngine& Engine(size_t i = 0) { return *room_->engines().engines().at(i); }
  FakeTriton& triton() { return server_.triton(); }

  double Gauge(const std::string& family, const std::string& instance = "m_0") {
    return triton().MetricValue(family, {{"model", "m"}, {"version", "1"}, {"instance", instance}});
  }
  double Requests(const std::string& outcome) {
    return triton().MetricValue("seq2seq_requests_total",
                                {{"instance", "m_0"}, {"outcome", outcome}});
  }

  static void ExpectError(FakeCall& call, TRITONSERVER_Error_Code code, const std::string& prefix) {
    ASSERT_TRUE(call.WaitFinished());
    EXPECT_EQ(call.last().error_code, code);
    EXPECT_EQ(call.last().error_text.substr(0, prefix.size()), prefix);
    EXPECT_TRUE(call.last().final);
  }

  // Everything is idle again.
  void ExpectIdle() {
    EXPECT_TRUE(Eventually([this] {
      return Gauge("seq2seq_active_sequences") == 0 && Gauge("seq2seq_waiting_sequences") == 0 &&
             Gauge("seq2seq_waiting_sequences", "queue") == 0 &&
             Gauge("seq2seq_kv_blocks_used") == 0;
    }));
  }

  std::shared_ptr<FakeClock> fake_clock_ = std::make_shared<FakeClock>();
  std::shared_ptr<const Clock> clock_ = std::make_shared<SteadyClock>();
  std::unique_ptr<RoomEnvironment> room_;  // outlives the backend
  FakeServer server_;
};

TEST_F(RoomTest, ServesARequest) {
  Start();
  const auto call = server_.Infer("m", Ids({5, 6, 7}, 5));
  ASSERT_TRUE(call->WaitFinished());
  EXPECT_EQ(call->tokens(), (std::vector<int32_t>{5, 6, 7, 5, 6}));
  const FakeResponse last = call->last();
  EXPECT_FALSE(last.error_code);
  EXPECT_EQ(std::get<std::string>(last.parameters.at("finish_reason")), "length");
  EXPECT_EQ(std::get<int64_t>(last.parameters.at("prompt_tokens")), 3);
  EXPECT_EQ(std::get<int64_t>(last.parameters.at("completion_tokens")), 5);
  EXPECT_FALSE(last.parameters.contains("seed"));
  ExpectIdle();
  EXPECT_EQ(Requests("ok"), 1);
  EXPECT_EQ(triton().MetricValue("seq2seq_generated_tokens_total", {}), 5);
  EXPECT_EQ(triton().MetricValue("seq2seq_source_tokens_total", {}), 3);
  EXPECT_EQ(Gauge("seq2seq_kv_blocks_total"), 64);
  ASSERT_EQ(room_->loaded().size(), 1U);
  EXPECT_EQ(room_->loaded()[0], "/models/m/1");
}

TEST_F(RoomTest, EosLogprobsSeedAndOneResponse) {
  Start();
  FakeRequest request = Ids({5, 1}, 10);
  request.parameters = {{"max_new_tokens", int64_t{10}},
                        {"return_logprobs", true},
                        {"stream", false},
                        {"do_sample", true}};
  const auto call = server_.Infer("m", request);
  ASSERT_TRUE(call->WaitFinished());
  ASSERT_EQ(call->responses().size(), 1U);
  const FakeResponse last = call->last();
  EXPECT_EQ(last.output_ids, (std::vector<int32_t>{5, 1}));
  EXPECT_EQ(last.logprobs, (std::vector<float>{FakeLogprob(0), FakeLogprob(1)}));
  EXPECT_EQ(std::get<std::string>(last.parameters.at("finish_reason")), "eos");
  const int64_t seed = std::get<int64_t>(last.parameters.at("seed"));
  EXPECT_GE(seed, 0);
  EXPECT_LT(seed, int64_t{1} << 53);

  const auto again = server_.Infer("m", request);
  ASSERT_TRUE(again->WaitFinished());
  EXPECT_NE(std::get<int64_t>(again->last().parameters.at("seed")), seed);
  const auto chosen = server_.Infer("m", With(request, "seed", int64_t{-3}));
  ASSERT_TRUE(chosen->WaitFinished());
  EXPECT_EQ(std::get<int64_t>(chosen->last().parameters.at("seed")), -3);
}

TEST_F(RoomTest, BadRequestsAmongGoodOnes) {
  Start();
  std::vector<std::shared_ptr<FakeCall>> good;
  std::vector<std::shared_ptr<FakeCall>> bad;
  FakeRequest no_input;
  FakeRequest unreadable = Ids({5});
  unreadable.faults.fail_inputs = true;
  for (const FakeRequest& request :
       {With(Ids({5}), "top_k", int64_t{-1}), With(Ids({5}), "nonsense", true), Ids({}),
        Ids({0, 0}), Ids(std::vector<int32_t>(5000, 7)), Ids({5}, 0), Ids({5000}),
        With(Ids({5}), "temperature", std::string("1")), no_input, unreadable}) {
    good.push_back(server_.Infer("m", Ids({8, 9}, 3)));
    bad.push_back(server_.Infer("m", request));
  }
  for (const auto& call : bad) ExpectError(*call, TRITONSERVER_ERROR_INVALID_ARG, "INVALID_ARG: ");
  for (const auto& call : good) {
    ASSERT_TRUE(call->WaitFinished());
    EXPECT_EQ(call->tokens(), (std::vector<int32_t>{8, 9, 8}));
  }
  EXPECT_EQ(Requests("invalid"), static_cast<double>(bad.size()));
  EXPECT_EQ(Requests("ok"), static_cast<double>(good.size()));
}

TEST_F(RoomTest, WhatNoKvCacheCanHoldIsInvalid) {
  Start();  // 64 blocks of 4 tokens
  const auto call = server_.Infer("m", Ids({5}, 1000));
  ExpectError(*call, TRITONSERVER_ERROR_INVALID_ARG, "INVALID_ARG: ");
}

TEST_F(RoomTest, AFullQueueRefuses) {
  FakeEngineOptions engine;
  engine.manual = true;
  Start(engine, {.config = Config(Parameter("max_active_sequences", "1") + "," +
                                  Parameter("max_queue_size", "2"))});
  std::vector<std::shared_ptr<FakeCall>> calls;
  // The engine takes some in; the queue holds two more; then it is full.
  std::shared_ptr<FakeCall> refused;
  for (int i = 0; i < 100 && refused == nullptr; ++i) {
    calls.push_back(server_.Infer("m", Ids({5}, 1)));
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    if (calls.back()->finished()) refused = calls.back();
  }
  ASSERT_NE(refused, nullptr);
  ExpectError(*refused, TRITONSERVER_ERROR_UNAVAILABLE, "UNAVAILABLE: ");
  EXPECT_EQ(Requests("refused"), 1);
  EXPECT_EQ(Gauge("seq2seq_waiting_sequences", "queue"), 2);
  calls.pop_back();
  ASSERT_TRUE(Eventually([&] {
    Engine().CompleteEncodes();
    Engine().CompleteStep();
    return std::all_of(calls.begin(), calls.end(),
                       [](const auto& call) { return call->finished(); });
  }));
  for (const auto& call : calls) EXPECT_EQ(call->tokens(), std::vector<int32_t>{5});
  ExpectIdle();
}

TEST_F(RoomTest, TimeoutWhileWaiting) {
  clock_ = fake_clock_;
  FakeEngineOptions engine;
  engine.manual = true;
  Start(engine, {.config = Config(Parameter("max_active_sequences", "1"))});
  const auto running = server_.Infer("m", Ids({5, 6}, 2));
  ASSERT_TRUE(Engine().WaitEncodesStarted(1));
  Engine().CompleteEncodes();
  ASSERT_TRUE(Engine().WaitStepsLaunched(1));
  FakeRequest late = Ids({7}, 2);
  late.timeout_us = 1000;
  const auto waiting = server_.Infer("m", late);
  fake_clock_->AdvanceMs(2);
  ASSERT_TRUE(Eventually([&] {
    Engine().CompleteEncodes();  // if it was taken in, it ends when its encode has ended
    return waiting->finished();
  }));
  ExpectError(*waiting, TRITONSERVER_ERROR_UNAVAILABLE, "UNAVAILABLE: ");
  EXPECT_EQ(Requests("timeout"), 1);
  ASSERT_TRUE(Eventually([&] {
    Engine().CompleteStep();
    return running->finished();
  }));
  EXPECT_EQ(running->tokens(), (std::vector<int32_t>{5, 6}));
}

TEST_F(RoomTest, TimeoutWhileRunning) {
  clock_ = fake_clock_;
  FakeEngineOptions engine;
  engine.manual = true;
  Start(engine);
  FakeRequest request = Ids({5, 6}, 50);
  request.timeout_us = 1000;
  const auto call = server_.Infer("m", request);
  ASSERT_TRUE(Engine().WaitEncodesStarted(1));
  Engine().CompleteEncodes();
  ASSERT_TRUE(Engine().WaitStepsLaunched(1));
  Engine().CompleteStep();
  ASSERT_TRUE(call->WaitResponses(1));
  fake_clock_->AdvanceMs(2);
  ASSERT_TRUE(Eventually([&] {
    Engine().CompleteStep();
    return call->finished();
  }));
  EXPECT_FALSE(call->last().error_code);
  EXPECT_EQ(std::get<std::string>(call->last().parameters.at("finish_reason")), "timeout");
  EXPECT_EQ(call->tokens().front(), 5);
  EXPECT_TRUE(call->statistics().at(0).success);
  EXPECT_EQ(Requests("timeout"), 1);
  ExpectIdle();
}

TEST_F(RoomTest, CancelledWhileRunning) {
  FakeEngineOptions engine;
  engine.step_delay = std::chrono::milliseconds(2);
  Start(engine);
  const auto call = server_.Infer("m", Ids({5, 6}, 200));
  ASSERT_TRUE(call->WaitResponses(3));
  call->Cancel();
  ExpectError(*call, TRITONSERVER_ERROR_CANCELLED, "CANCELLED: ");
  EXPECT_LT(call->tokens().size(), 200U);
  EXPECT_EQ(Requests("cancelled"), 1);
  ExpectIdle();
}

TEST_F(RoomTest, AFailedEncodeConcernsItsRequestAlone) {
  FakeEngineOptions engine;
  engine.manual = true;
  Start(engine);
  Engine().FailNthEncode(0);
  const auto bad = server_.Infer("m", Ids({5}, 2));
  const auto good = server_.Infer("m", Ids({6}, 2));
  ASSERT_TRUE(Eventually([&] {
    Engine().CompleteEncodes();
    Engine().CompleteStep();
    return bad->finished() && good->finished();
  }));
  ExpectError(*bad, TRITONSERVER_ERROR_INTERNAL, "INTERNAL: ");
  EXPECT_EQ(good->tokens(), (std::vector<int32_t>{6, 6}));
  EXPECT_EQ(Requests("failed"), 1);
}

TEST_F(RoomTest, AFailedEngineFailsWhatItHeldAndRefusesTheRest) {
  Start();
  Engine().FailNthStep(2);
  const auto held = server_.Infer("m", Ids({5}, 100));
  ExpectError(*held, TRITONSERVER_ERROR_INTERNAL, "INTERNAL: ");
  const auto next = server_.Infer("m", Ids({5}, 2));
  ExpectError(*next, TRITONSERVER_ERROR_UNAVAILABLE, "UNAVAILABLE: ");
  ExpectIdle();
  const std::vector<std::string> log = server_.triton().log();
  EXPECT_EQ(std::ranges::count_if(log,
                                  [](const std::string& line) {
                                    return line.find("step 2 failed") != std::string::npos;
                                  }),
            1);
}

// As when a GPU is lost: a step and an encode are in flight, others wait.
TEST_F(RoomTest, ALostDeviceFailsStepsAndEncodesAndRefusesTheRest) {
  FakeEngineOptions engine;
  engine.manual = true;
  Start(engine, {.config = Config(Parameter("max_active_sequences", "2"))});
  const auto decoding = server_.Infer("m", Ids({5, 6}, 50));
  ASSERT_TRUE(Engine().WaitEncodesStarted(1));
  Engine().CompleteEncodes();
  ASSERT_TRUE(Engine().WaitStepsLaunched(1));
  Engine().CompleteStep();
  ASSERT_TRUE(decoding->WaitResponses(1));
  ASSERT_TRUE(Engine().WaitStepsLaunched(2));
  const auto encoding = server_.Infer("m", Ids({7}, 5));
  ASSERT_TRUE(Eventually([&] {
    if (Engine().encodes_started() == 2) return true;
    Engine().CompleteStep();
    return false;
  }));
  std::vector<std::shared_ptr<FakeCall>> waiting;
  for (int i = 0; i < 4; ++i) waiting.push_back(server_.Infer("m", Ids({8}, 5)));
  Engine().LoseDevice();
  ExpectError(*decoding, TRITONSERVER_ERROR_INTERNAL, "INTERNAL: ");
  ExpectError(*encoding, TRITONSERVER_ERROR_INTERNAL, "INTERNAL: ");
  for (const auto& call : waiting) {
    // Taken in by the engine's scheduler already, or not.
    ASSERT_TRUE(call->WaitFinished());
    EXPECT_TRUE(call->last().error_code == TRITONSERVER_ERROR_INTERNAL ||
                call->last().error_code == TRITONSERVER_ERROR_UNAVAILABLE);
    EXPECT_TRUE(call->last().final);
  }
  for (int i = 0; i < 3; ++i) {
    const auto next = server_.Infer("m", Ids({5}, 2));
    ExpectError(*next, TRITONSERVER_ERROR_UNAVAILABLE, "UNAVAILABLE: ");
  }
  ExpectIdle();
  EXPECT_EQ(Requests("failed") + Requests("refused"), 9);
}

TEST_F(RoomTest, AnotherInstanceServesOnWhenOneIsLost) {
  Start({}, {.instances = {{}, {}}});
  Engine(0).LoseDevice();
  // What the lost instance takes before it notices is lost with it, once.
  int lost = 0;
  ASSERT_TRUE(Eventually([&] {
    const auto call = server_.Infer("m", Ids({5, 6}, 3));
    if (!call->WaitFinished()) return false;
    lost += call->last().error_code.has_value() ? 1 : 0;
    return !Engine(0).Health() && !call->last().error_code;
  }));
  EXPECT_LE(lost, 1);
  for (int i = 0; i < 20; ++i) {
    const auto call = server_.Infer("m", Ids({5, 6}, 3), i % 2);
    ASSERT_TRUE(call->WaitFinished());
    EXPECT_FALSE(call->last().error_code) << call->last().error_text;
    EXPECT_EQ(call->tokens(), (std::vector<int32_t>{5, 6, 5}));
  }
}

TEST_F(RoomTest, UnloadFailsWhatRunsAndWaits) {
  FakeEngineOptions engine;
  engine.step_delay = std::chrono::milliseconds(1);
  Start(engine, {.config = Config(Parameter("max_active_sequences", "1"))});
  std::vector<std::shared_ptr<FakeCall>> calls;
  for (int i = 0; i < 8; ++i) calls.push_back(server_.Infer("m", Ids({5}, 200)));
  ASSERT_TRUE(calls[0]->WaitResponses(1));
  server_.Unload("m");
  for (const auto& call : calls) {
    ExpectError(*call, TRITONSERVER_ERROR_UNAVAILABLE, "UNAVAILABLE: ");
  }
  ASSERT_EQ(server_.Load({}), "");
  const auto call = server_.Infer("m", Ids({5}, 1));
  ASSERT_TRUE(call->WaitFinished());
  EXPECT_EQ(call->tokens(), std::vector<int32_t>{5});
}

TEST_F(RoomTest, TwoInstancesShareTheQueue) {
  FakeEngineOptions engine;
  engine.tokens.kind = FakeTokenRule::Kind::kHash;
  engine.step_delay = std::chrono::microseconds(200);
  Start(engine, {.instances = {{}, {}}});
  std::vector<std::shared_ptr<FakeCall>> calls;
  for (int32_t i = 0; i < 32; ++i) calls.push_back(server_.Infer("m", Ids({i + 2, 3}, 20), i % 2));
  for (int32_t i = 0; i < 32; ++i) {
    ASSERT_TRUE(calls[i]->WaitFinished());
    const std::vector<int32_t> source = {i + 2, 3};
    EXPECT_EQ(calls[i]->tokens(), FakeOutput(engine.tokens, source, 0, 20));
  }
  EXPECT_EQ(
      triton().MetricValue("seq2seq_requests_total", {{"instance", "m_1"}, {"outcome", "ok"}}), 16);
}

TEST_F(RoomTest, AnInstanceThatGoesServesItsSequencesToTheEnd) {
  FakeEngineOptions engine;
  engine.step_delay = std::chrono::milliseconds(2);
  Start(engine, {.config = Config(Parameter("max_active_sequences", "2")), .instances = {{}, {}}});
  std::vector<std::shared_ptr<FakeCall>> calls;
  for (int i = 0; i < 4; ++i) calls.push_back(server_.Infer("m", Ids({5, 6}, 100), i % 2));
  for (const auto& call : calls) ASSERT_TRUE(call->WaitResponses(1));
  server_.RemoveInstance("m", 0);
  EXPECT_EQ(Gauge("seq2seq_active_sequences", "m_0"), 2);
  for (const auto& call : calls) {
    ASSERT_TRUE(call->WaitFinished());
    EXPECT_FALSE(call->last().error_code) << call->last().error_text;
    EXPECT_EQ(call->tokens().size(), 100);
  }
  const auto late = server_.Infer("m", Ids({5}, 1), 1);
  ASSERT_TRUE(late->WaitFinished());
  EXPECT_EQ(late->tokens(), std::vector<int32_t>{5});
}

TEST_F(RoomTest, WithoutAResponseFactoryTheRequestStaysTritons) {
  Start();
  FakeRequest request = Ids({5});
  request.faults.fail_factory = true;
  std::string error;
  const auto call = server_.Infer("m", request, 0, &error);
  EXPECT_EQ(error, "INTERNAL: scripted: no response factory");
  EXPECT_TRUE(call->events().empty());
}

TEST_F(RoomTest, MetricsLookAsPromised) {
  Start();
  const auto call = server_.Infer("m", Ids({5, 6}, 3));
  ASSERT_TRUE(call->WaitFinished());
  ExpectIdle();
  const std::vector<std::string> expected = {
      R"(seq2seq_active_sequences{instance="m_0",model="m",version="1"} 0)",
      R"(seq2seq_generated_tokens_total{instance="m_0",model="m",version="1"} 3)",
      R"(seq2seq_kv_blocks_total{instance="m_0",model="m",version="1"} 64)",
      R"(seq2seq_kv_blocks_used{instance="m_0",model="m",version="1"} 0)",
      R"(seq2seq_requests_total{instance="m_0",model="m",outcome="cancelled",version="1"} 0)",
      R"(seq2seq_requests_total{instance="m_0",model="m",outcome="failed",version="1"} 0)",
      R"(seq2seq_requests_total{instance="m_0",model="m",outcome="invalid",version="1"} 0)",
      R"(seq2seq_requests_total{instance="m_0",model="m",outcome="ok",version="1"} 1)",
      R"(seq2seq_requests_total{instance="m_0",model="m",outcome="refused",version="1"} 0)",
      R"(seq2seq_requests_total{instance="m_0",model="m",outcome="timeout",version="1"} 0)",
      R"(seq2seq_source_tokens_total{instance="m_0",model="m",version="1"} 2)",
      R"(seq2seq_waiting_sequences{instance="m_0",model="m",version="1"} 0)",
      R"(seq2seq_waiting_sequences{instance="queue",model="m",version="1"} 0)",
  };
  EXPECT_EQ(triton().MetricLines(), expected);
}

TEST_F(RoomTest, GaugesAreOfAllThatServeWhileAModelIsLoadedAgain) {
  FakeEngineOptions engine;
  engine.step_delay = std::chrono::milliseconds(5);
  Start(engine);
  const auto before = server_.Infer("m", Ids({5, 6}, 60));
  ASSERT_EQ(server_.Load({}), "");
  EXPECT_EQ(Gauge("seq2seq_kv_blocks_total"), 128);
  const auto after = server_.Infer("m", Ids({5, 6}, 60));
  EXPECT_TRUE(Eventually([this] { return Gauge("seq2seq_active_sequences") == 2; }));
  ASSERT_TRUE(before->WaitFinished());
  server_.UnloadFirst("m");
  EXPECT_EQ(Gauge("seq2seq_kv_blocks_total"), 64);
  ASSERT_TRUE(after->WaitFinished());
  ExpectIdle();
}

TEST_F(RoomTest, MixedTrafficLeavesNothingBehind) {
  FakeEngineOptions engine;
  engine.info.max_slots = 8;
  Start(engine);
  std::vector<std::shared_ptr<FakeCall>> calls;
  for (int i = 0; i < 300; ++i) {
    FakeRequest request = Ids({5, 6, 7}, 1 + i % 40);
    if (i % 7 == 0) request = With(request, "top_p", 0.0);
    if (i % 11 == 0) request.faults.fail_output_buffer = {1};
    if (i % 13 == 0) request.faults.fail_send = {1};
    if (i % 17 == 0) request.timeout_us = 1;
    calls.push_back(server_.Infer("m", request));
    if (i % 5 == 0) calls.back()->Cancel();
  }
  for (size_t i = 0; i < calls.size(); ++i) {
    ASSERT_TRUE(calls[i]->WaitGivenBack());
    // The second send, scripted to fail, carries FINAL if the tokens were merged into it.
    EXPECT_TRUE(calls[i]->finished() || i % 13 == 0);
  }
  ExpectIdle();
  double ended = 0;
  for (const char* outcome : {"ok", "timeout", "invalid", "refused", "cancelled", "failed"}) {
    ended += Requests(outcome);
  }
  EXPECT_EQ(ended, 300);
}

}  // namespace
}  // namespace seq2seq
