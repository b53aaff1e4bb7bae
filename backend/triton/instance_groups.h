// What config.pbtxt says about a model's instances.
#ifndef SEQ2SEQ_BACKEND_TRITON_INSTANCE_GROUPS_H_
#define SEQ2SEQ_BACKEND_TRITON_INSTANCE_GROUPS_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <vector>

namespace seq2seq {

// One entry of instance_group.
struct InstanceGroup {
  bool on_gpus = false;       // KIND_GPU
  int32_t count = 1;          // instances, on each of `gpus` if on_gpus
  std::vector<int32_t> gpus;  // empty with on_gpus: all that the server sees
};

// Reads a configuration in Triton's JSON form, as the server completes it. What can't be read is
// left out: Triton has checked it, and the numbers only divide memory.
std::vector<InstanceGroup> ReadInstanceGroups(const nlohmann::json& config);

// Engines on one GPU, at least 1. `all_on_cuda`: instances of other kinds run there too, on GPU 0.
int32_t CountInstancesOnGpu(const std::vector<InstanceGroup>& groups, int32_t gpu,
                            bool all_on_cuda);

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_TRITON_INSTANCE_GROUPS_H_
