#include "backend/triton/model_state.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>

#include "backend/core/format.h"
#include "backend/triton/request_policy_builder.h"
#include "backend/triton/triton_log.h"

namespace seq2seq {
namespace {

// Two at least, so that one blocked client does not hold up the others.
int SenderThreads() {
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 2, 8);
}

Metric MakeQueueMetric(const BackendState& backend, const ModelIdentity& identity) {
  const MetricLabel labels[] = {
      {"model", identity.name}, {"version", identity.version}, {"instance", "queue"}};
  return backend.metrics().waiting_sequences.Make(labels);
}

}  // namespace

struct ModelState::Parts {
  ModelIdentity identity;
  ModelOptions options;
  std::vector<InstanceGroup> instance_groups;
  RequestPolicy policy;
  std::unique_ptr<EngineFactory> engine_factory;
};

Result<std::unique_ptr<ModelState>> ModelState::Create(TRITONBACKEND_Model* model,
                                                       const BackendState& backend) {
  Parts parts;
  SEQ2SEQ_ASSIGN_OR_RETURN(parts.identity, IdentifyModel(model));
  SEQ2SEQ_ASSIGN_OR_RETURN(const nlohmann::json config, ReadModelConfig(model));
  SEQ2SEQ_ASSIGN_OR_RETURN(parts.options, ParseModelOptions(config));
  parts.instance_groups = ReadInstanceGroups(config);
  SEQ2SEQ_ASSIGN_OR_RETURN(std::shared_ptr<const Checkpoint> checkpoint,
                           backend.environment().load_checkpoint(parts.identity.directory));
  SEQ2SEQ_ASSIGN_OR_RETURN(BuiltPolicy built, BuildRequestPolicy(parts.options, checkpoint->spec(),
                                                                 checkpoint->generation()));
  for (const std::string& note : built.notes) {
    LogWarning(Format("model '{}': {}", parts.identity.name, note));
  }
  parts.policy = built.policy;
  parts.engine_factory = backend.environment().make_engine_factory(std::move(checkpoint));
  return std::unique_ptr<ModelState>(new ModelState(backend, std::move(parts)));
}

ModelState::ModelState(const BackendState& backend, Parts parts)
    : backend_(backend),
      identity_(std::move(parts.identity)),
      options_(parts.options),
      instance_groups_(std::move(parts.instance_groups)),
      policy_(parts.policy),
      engine_factory_(std::move(parts.engine_factory)),
      sender_(backend.environment().clock.get(), SenderThreads()),
      queue_(static_cast<size_t>(options_.max_queue_size)),
      queue_gauge_(std::make_shared<QueueGauge>(MakeQueueMetric(backend, identity_), &queue_)) {}

ModelState::~ModelState() {
  // Requests that are answered while the members go still update the gauge.
  queue_gauge_->Detach();
}

}  // namespace seq2seq
