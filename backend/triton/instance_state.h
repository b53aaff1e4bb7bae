// A loaded model instance: an engine and the scheduler that drives it.
#ifndef SEQ2SEQ_BACKEND_TRITON_INSTANCE_STATE_H_
#define SEQ2SEQ_BACKEND_TRITON_INSTANCE_STATE_H_

#include <cstdint>
#include <memory>
#include <span>

#include "backend/core/status.h"
#include "backend/request/token_sink.h"
#include "backend/triton/instance_account.h"
#include "backend/triton/instance_drive.h"
#include "backend/triton/instance_metrics.h"
#include "backend/triton/model_state.h"
#include "backend/triton/outgoing_stream.h"
#include "backend/triton/triton_abi.h"

namespace seq2seq {

// Lives from ModelInstanceInitialize to ModelInstanceFinalize.
class InstanceState {
 public:
  // Creates the engine and starts the scheduler. `model` outlives the instance.
  [[nodiscard]] static Result<std::unique_ptr<InstanceState>> Create(
      TRITONBACKEND_ModelInstance* instance, ModelState* model);
  ~InstanceState();  // the model serves its sequences to their end
  InstanceState(const InstanceState&) = delete;
  InstanceState& operator=(const InstanceState&) = delete;

  // Takes all requests, which are answered later by other threads, each for itself, whatever is
  // wrong with it. With an error none was taken. The requests' time of arrival is that of the call.
  [[nodiscard]] Status Execute(std::span<TRITONBACKEND_Request* const> requests);

 private:
  InstanceState(ModelState* model, const InstanceLabels& labels);

  Status CreateEngine(TRITONBACKEND_ModelInstance* instance);
  void Accept(TRITONBACKEND_Request* request, const std::shared_ptr<OutgoingStream>& stream,
              int64_t arrival_ns);
  // With an error, `sink` is still the caller's to be failed.
  Status Enqueue(TRITONBACKEND_Request* request, OutgoingStream& stream,
                 std::unique_ptr<TokenSink>& sink, int64_t arrival_ns);

  ModelState* const model_;
  std::unique_ptr<InstanceDrive> drive_;
  std::shared_ptr<InstanceAccount> account_;
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_TRITON_INSTANCE_STATE_H_
