// Loading and refusing: what an operator sees.
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "backend/testing/fake_triton/fake_server.h"
#include "backend/testing/room_environment.h"
#include "backend/triton/api_version.h"

namespace seq2seq {
namespace {

class ApiTest : public ::testing::Test {
 protected:
  void TearDown() override {
    server_.Stop();
    EXPECT_EQ(server_.triton().ProblemsAtEnd(), std::vector<std::string>{});
  }

  void ExpectRefused(const FakeModelSetup& setup, const std::string& part) {
    const std::string error = server_.Load(setup);
    EXPECT_NE(error.find(part), std::string::npos) << error << " lacks " << part;
  }

  static FakeModelSetup WithParameter(const std::string& key, const std::string& value) {
    return {.config = "{\"parameters\":{\"" + key + "\":{\"string_value\":\"" + value + "\"}}}"};
  }

  RoomEnvironment room_{FakeEngineOptions{}};
  FakeServer server_;
};

TEST_F(ApiTest, VersionsThatFit) {
  EXPECT_TRUE(CheckApiVersion(1, 19));
  EXPECT_TRUE(CheckApiVersion(1, 25));
  for (const auto& [major, minor] : {std::pair{1U, 18U}, {2U, 19U}, {0U, 99U}}) {
    const Status status = CheckApiVersion(major, minor);
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, ErrorCode::kUnsupported);
  }
}

TEST_F(ApiTest, AServerTooOldIsRefusedInWords) {
  server_.triton().set_api_version(1, 10);
  EXPECT_EQ(server_.Start(),
            "UNSUPPORTED: this server speaks backend API 1.10, the seq2seq backend needs 1.19 or a "
            "later 1.x: use a server of release 24.04 or later with that major version");
}

TEST_F(ApiTest, PrefersGpuInstancesWithACudaEngine) {
  room_.PretendCudaEngine();
  ASSERT_EQ(server_.Start(), "");
  TRITONBACKEND_BackendAttribute* attribute = server_.triton().NewAttribute();
  EXPECT_EQ(TakeText(TRITONBACKEND_GetBackendAttribute(server_.backend(), attribute)), "");
  EXPECT_EQ(attribute->preferred_groups,
            (std::vector<TRITONSERVER_InstanceGroupKind>{TRITONSERVER_INSTANCEGROUPKIND_GPU,
                                                         TRITONSERVER_INSTANCEGROUPKIND_CPU}));
}

TEST_F(ApiTest, PrefersCpuInstancesWithoutOneLoadedInParallel) {
  ASSERT_EQ(server_.Start(), "");
  TRITONBACKEND_BackendAttribute* attribute = server_.triton().NewAttribute();
  EXPECT_EQ(TakeText(TRITONBACKEND_GetBackendAttribute(server_.backend(), attribute)), "");
  EXPECT_EQ(attribute->preferred_groups,
            std::vector<TRITONSERVER_InstanceGroupKind>{TRITONSERVER_INSTANCEGROUPKIND_CPU});
  EXPECT_TRUE(attribute->parallel_loading);
}

TEST_F(ApiTest, CompletesTheConfigurationWhereAllowed) {
  ASSERT_EQ(server_.Start(), "");
  ASSERT_EQ(server_.Load({.config = R"({"name":"m"})"}), "");
  const auto config = nlohmann::json::parse(server_.config("m"));
  EXPECT_EQ(config["name"], "m");
  EXPECT_EQ(config["input"].size(), 2U);
  EXPECT_EQ(config["output"].size(), 2U);
  EXPECT_EQ(config["model_transaction_policy"]["decoupled"], true);
  server_.Unload("m");
  ExpectRefused({.config = R"({"name":"m"})", .auto_complete = false}, "decoupled: true");
}

TEST_F(ApiTest, BadConfigurationsFailTheLoad) {
  ASSERT_EQ(server_.Start(), "");
  ExpectRefused({.config = "{\"max_batch_size\":4}"}, "INVALID_ARG: config.pbtxt: max_batch_size");
  ExpectRefused({.config = "not json"}, "not a JSON object");
  ExpectRefused({.config = "{\"input\":[7]}"}, "unknown input");
  ExpectRefused({.fail_config = true}, "scripted: no model configuration");
  ExpectRefused(WithParameter("max_batch", "2"), "unknown parameter 'max_batch'");
  ExpectRefused(WithParameter("engine", "tpu"), "parameter 'engine' is 'tpu'");
}

TEST_F(ApiTest, BadCheckpointsFailTheLoad) {
  ASSERT_EQ(server_.Start(), "");
  room_.FailCheckpoint(Error{ErrorCode::kNotFound, "model.safetensors: no tensor 'x'"});
  EXPECT_EQ(server_.Load({}), "NOT_FOUND: model.safetensors: no tensor 'x'");
}

TEST_F(ApiTest, NoExceptionCrossesTheBoundary) {
  ASSERT_EQ(server_.Start(), "");
  room_.ThrowFromCheckpoint();
  EXPECT_EQ(server_.Load({}), "INTERNAL: a library threw");
}

TEST_F(ApiTest, InstanceKindsChooseTheEngine) {
  ASSERT_EQ(server_.Start(), "");
  ASSERT_EQ(server_.Load({.instances = {{TRITONSERVER_INSTANCEGROUPKIND_CPU, 0},
                                        {TRITONSERVER_INSTANCEGROUPKIND_AUTO, 0},
                                        {TRITONSERVER_INSTANCEGROUPKIND_MODEL, 0},
                                        {TRITONSERVER_INSTANCEGROUPKIND_GPU, 1}}}),
            "");
  server_.Unload("m");
  ASSERT_EQ(server_.Load(WithParameter("engine", "cuda")), "");
  server_.Unload("m");
  FakeModelSetup cpu = WithParameter("engine", "cpu");
  cpu.instances = {{TRITONSERVER_INSTANCEGROUPKIND_GPU, 0}};
  ASSERT_EQ(server_.Load(cpu), "");
  server_.Unload("m");
  const std::vector<EngineOptions> asked = room_.engines().requested();
  ASSERT_EQ(asked.size(), 6U);
  for (const size_t cpu_instance : {0, 1, 2, 5}) {
    EXPECT_EQ(asked[cpu_instance].kind, EngineKind::kCpu);
    EXPECT_EQ(asked[cpu_instance].max_active_sequences, 16);
  }
  EXPECT_EQ(asked[3].kind, EngineKind::kCuda);
  EXPECT_EQ(asked[3].device_id, 1);
  EXPECT_EQ(asked[3].max_active_sequences, 256);
  EXPECT_EQ(asked[4].kind, EngineKind::kCuda);
}

TEST_F(ApiTest, OptionsReachTheEngine) {
  ASSERT_EQ(server_.Start(), "");
  ASSERT_EQ(server_.Load({.config = R"({"parameters":{
      "max_active_sequences":{"string_value":"3"}, "max_source_tokens":{"string_value":"40"},
      "max_new_tokens":{"string_value":"50"}, "kv_cache_bytes":{"string_value":"65536"},
      "weights_dtype":{"string_value":"float16"}, "cpu_threads":{"string_value":"2"}}})"}),
            "");
  const EngineOptions asked = room_.engines().requested().at(0);
  EXPECT_EQ(asked.max_active_sequences, 3);
  EXPECT_EQ(asked.max_source_tokens, 40);
  EXPECT_EQ(asked.max_decoder_tokens, 90);
  EXPECT_EQ(asked.kv_cache_bytes, 65536);
  EXPECT_EQ(asked.weights_dtype, DType::kFloat16);
  EXPECT_EQ(asked.cpu_threads, 2);
  server_.Unload("m");
}

TEST_F(ApiTest, AnInstanceLearnsHowManyShareItsGpu) {
  ASSERT_EQ(server_.Start(), "");
  ASSERT_EQ(server_.Load({.config = R"({"instance_group":[
                              {"kind":"KIND_GPU","count":2,"gpus":[0,1]},
                              {"kind":"KIND_GPU","count":1,"gpus":[1]}]})",
                          .instances = {{TRITONSERVER_INSTANCEGROUPKIND_GPU, 0},
                                        {TRITONSERVER_INSTANCEGROUPKIND_GPU, 1}}}),
            "");
  EXPECT_EQ(room_.engines().requested().at(0).instances_on_device, 2);
  EXPECT_EQ(room_.engines().requested().at(1).instances_on_device, 3);
  server_.Unload("m");
}

TEST_F(ApiTest, WithoutACudaEngineGpuInstancesFailTheLoadSayingSo) {
  ASSERT_EQ(server_.Start(), "");
  room_.engines().FailCreate(Error{ErrorCode::kUnsupported, "this build has none"});
  EXPECT_EQ(server_.Load({.instances = {{TRITONSERVER_INSTANCEGROUPKIND_GPU, 0}}}),
            "UNSUPPORTED: the instance is KIND_GPU, but no CUDA engine can run it: this build has "
            "none; on the CPU it runs with KIND_CPU");
  EXPECT_EQ(server_.Load(WithParameter("engine", "cuda")),
            "UNSUPPORTED: parameter 'engine' is 'cuda', but no CUDA engine can run it: this build "
            "has none; on the CPU it runs with engine 'cpu'");
  EXPECT_EQ(server_.Load({}), "UNSUPPORTED: this build has none");
}

TEST_F(ApiTest, ModelsLoadWithoutMetrics) {
  server_.triton().FailMetricFamilies();
  ASSERT_EQ(server_.Start(), "");
  ASSERT_EQ(server_.Load({}), "");
  FakeRequest request;
  request.inputs = {MakeIds("input_ids", {5})};
  request.parameters = {{"max_new_tokens", int64_t{2}}};
  const auto call = server_.Infer("m", request);
  ASSERT_TRUE(call->WaitFinished());
  EXPECT_EQ(call->tokens(), (std::vector<int32_t>{5, 5}));
  server_.Unload("m");
}

TEST_F(ApiTest, LoadsAndUnloadsAgainAndAgain) {
  ASSERT_EQ(server_.Start(), "");
  for (int i = 0; i < 50; ++i) {
    ASSERT_EQ(server_.Load({}), "");
    server_.Unload("m");
  }
}

}  // namespace
}  // namespace seq2seq
