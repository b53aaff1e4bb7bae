// A loaded model: what its instances share.
#ifndef SEQ2SEQ_BACKEND_TRITON_MODEL_STATE_H_
#define SEQ2SEQ_BACKEND_TRITON_MODEL_STATE_H_

#include <memory>
#include <vector>

#include "backend/core/clock.h"
#include "backend/core/status.h"
#include "backend/engine/engine_factory.h"
#include "backend/request/request_policy.h"
#include "backend/scheduler/request_queue.h"
#include "backend/triton/backend_state.h"
#include "backend/triton/instance_groups.h"
#include "backend/triton/model_identity.h"
#include "backend/triton/model_options.h"
#include "backend/triton/queue_gauge.h"
#include "backend/triton/response_sender.h"
#include "backend/triton/retired_drives.h"
#include "backend/triton/seed_source.h"
#include "backend/triton/triton_abi.h"

namespace seq2seq {

// Lives from ModelInitialize to ModelFinalize; its instances are gone by then. What is not const is
// safe from any thread.
class ModelState {
 public:
  // Reads configuration and checkpoint; an error names what is wrong with them. `backend` outlives
  // the model.
  [[nodiscard]] static Result<std::unique_ptr<ModelState>> Create(TRITONBACKEND_Model* model,
                                                                  const BackendState& backend);
  ~ModelState();  // fails what waits in the queue, and sends it
  ModelState(const ModelState&) = delete;
  ModelState& operator=(const ModelState&) = delete;

  const BackendState& backend() const { return backend_; }
  const ModelIdentity& identity() const { return identity_; }
  const ModelOptions& options() const { return options_; }
  const std::vector<InstanceGroup>& instance_groups() const { return instance_groups_; }
  const RequestPolicy& policy() const { return policy_; }
  const Clock& clock() const { return *backend_.environment().clock; }
  EngineFactory& engine_factory() { return *engine_factory_; }
  RequestQueue& queue() { return queue_; }
  const std::shared_ptr<QueueGauge>& queue_gauge() { return queue_gauge_; }
  ResponseSender& sender() { return sender_; }
  SeedSource& seeds() { return seeds_; }
  RetiredDrives& retired_drives() { return retired_drives_; }

 private:
  struct Parts;  // what Create() gathers
  ModelState(const BackendState& backend, Parts parts);

  const BackendState& backend_;
  const ModelIdentity identity_;
  const ModelOptions options_;
  const std::vector<InstanceGroup> instance_groups_;
  const RequestPolicy policy_;
  const std::unique_ptr<EngineFactory> engine_factory_;
  SeedSource seeds_;
  ResponseSender sender_;  // sends what the queue fails in the end
  RequestQueue queue_;
  const std::shared_ptr<QueueGauge> queue_gauge_;
  RetiredDrives retired_drives_;  // first to go: it uses all of the above
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_TRITON_MODEL_STATE_H_
