#include "backend/triton/instance_options.h"

#include <algorithm>
#include <thread>

namespace seq2seq {
namespace {

constexpr int32_t kCpuMaxActiveSequences = 16;
constexpr int32_t kCudaMaxActiveSequences = 256;

EngineKind ChooseEngine(EngineChoice choice, TRITONSERVER_InstanceGroupKind kind) {
  switch (choice) {
    case EngineChoice::kCpu:
      return EngineKind::kCpu;
    case EngineChoice::kCuda:
      return EngineKind::kCuda;
    case EngineChoice::kAuto:
      break;
  }
  return kind == TRITONSERVER_INSTANCEGROUPKIND_GPU ? EngineKind::kCuda : EngineKind::kCpu;
}

}  // namespace

EngineOptions MakeEngineOptions(const ModelOptions& options, const RequestPolicy& policy,
                                const std::vector<InstanceGroup>& groups,
                                TRITONSERVER_InstanceGroupKind kind, int32_t device_id) {
  EngineOptions engine;
  engine.kind = ChooseEngine(options.engine, kind);
  engine.device_id = std::max(device_id, 0);
  engine.instances_on_device =
      CountInstancesOnGpu(groups, engine.device_id, options.engine == EngineChoice::kCuda);
  engine.max_active_sequences = options.max_active_sequences.value_or(
      engine.kind == EngineKind::kCpu ? kCpuMaxActiveSequences : kCudaMaxActiveSequences);
  engine.max_source_tokens = policy.max_source_tokens;
  engine.max_decoder_tokens = policy.max_decoder_tokens;
  engine.kv_cache_bytes = options.kv_cache_bytes;
  engine.weights_dtype = options.weights_dtype;
  engine.cpu_threads = options.cpu_threads.value_or(
      std::max(1, static_cast<int32_t>(std::thread::hardware_concurrency())));
  return engine;
}

}  // namespace seq2seq
