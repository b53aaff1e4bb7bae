#include "backend/triton/instance_groups.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

namespace seq2seq {
namespace {

using nlohmann::json;

InstanceGroup ReadGroup(const json& declared) {
  InstanceGroup group;
  if (const auto kind = declared.find("kind"); kind != declared.end()) {
    group.on_gpus = *kind == "KIND_GPU";
  }
  if (const auto count = declared.find("count");
      count != declared.end() && count->is_number_integer()) {
    group.count = static_cast<int32_t>(
        std::clamp<int64_t>(count->get<int64_t>(), 1, std::numeric_limits<int16_t>::max()));
  }
  const auto gpus = declared.find("gpus");
  if (gpus == declared.end() || !gpus->is_array()) return group;
  for (const json& gpu : *gpus) {
    if (gpu.is_number_integer()) group.gpus.push_back(gpu.get<int32_t>());
  }
  return group;
}

bool IsOn(const InstanceGroup& group, int32_t gpu, bool all_on_cuda) {
  if (!group.on_gpus) return all_on_cuda && gpu == 0;
  return group.gpus.empty() || std::ranges::count(group.gpus, gpu) > 0;
}

}  // namespace

std::vector<InstanceGroup> ReadInstanceGroups(const json& config) {
  std::vector<InstanceGroup> groups;
  const auto declared = config.find("instance_group");
  if (declared == config.end() || !declared->is_array()) return groups;
  for (const json& group : *declared) {
    if (group.is_object()) groups.push_back(ReadGroup(group));
  }
  return groups;
}

int32_t CountInstancesOnGpu(const std::vector<InstanceGroup>& groups, int32_t gpu,
                            bool all_on_cuda) {
  int32_t count = 0;
  for (const InstanceGroup& group : groups) {
    if (IsOn(group, gpu, all_on_cuda)) count += group.count;
  }
  return std::max(count, 1);
}

}  // namespace seq2seq
