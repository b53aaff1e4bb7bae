#include "backend/triton/instance_groups.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace seq2seq {
namespace {

int32_t Count(const char* config, int32_t gpu, bool all_on_cuda = false) {
  return CountInstancesOnGpu(ReadInstanceGroups(nlohmann::json::parse(config)), gpu, all_on_cuda);
}

TEST(InstanceGroupsTest, AddsTheGroupsOfAGpu) {
  const char* config = R"({"instance_group":[{"kind":"KIND_GPU","count":2,"gpus":[0,1]},
                                             {"kind":"KIND_GPU","count":3,"gpus":[1]},
                                             {"kind":"KIND_CPU","count":5}]})";
  EXPECT_EQ(Count(config, 0), 2);
  EXPECT_EQ(Count(config, 1), 5);
}

TEST(InstanceGroupsTest, AGroupWithoutAListIsOnEveryGpu) {
  EXPECT_EQ(Count(R"({"instance_group":[{"kind":"KIND_GPU","count":4}]})", 7), 4);
}

TEST(InstanceGroupsTest, OtherKindsCountOnGpu0WhereTheEngineIsCudaForAll) {
  const char* config = R"({"instance_group":[{"kind":"KIND_CPU","count":2},
                                             {"kind":"KIND_GPU","count":1,"gpus":[0,1]}]})";
  EXPECT_EQ(Count(config, 0, true), 3);
  EXPECT_EQ(Count(config, 1, true), 1);
}

TEST(InstanceGroupsTest, IsOneWhereNothingIsSaid) {
  EXPECT_EQ(Count("{}", 0), 1);
  EXPECT_EQ(Count(R"({"instance_group":null})", 0), 1);
  EXPECT_EQ(Count(R"({"instance_group":[{"kind":"KIND_GPU","count":"x","gpus":"y"}, 3]})", 0), 1);
}

}  // namespace
}  // namespace seq2seq
