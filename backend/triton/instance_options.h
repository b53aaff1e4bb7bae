// From the model's options and the instance's kind to what the engine factory is asked for.
#ifndef SEQ2SEQ_BACKEND_TRITON_INSTANCE_OPTIONS_H_
#define SEQ2SEQ_BACKEND_TRITON_INSTANCE_OPTIONS_H_

#include <cstdint>
#include <vector>

#include "backend/engine/engine_factory.h"
#include "backend/request/request_policy.h"
#include "backend/triton/instance_groups.h"
#include "backend/triton/model_options.h"
#include "backend/triton/triton_abi.h"

namespace seq2seq {

// The engine is the one that the option `engine` names; where that is auto, CUDA for KIND_GPU and
// the CPU for all other kinds. `groups` are the model's.
EngineOptions MakeEngineOptions(const ModelOptions& options, const RequestPolicy& policy,
                                const std::vector<InstanceGroup>& groups,
                                TRITONSERVER_InstanceGroupKind kind, int32_t device_id);

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_TRITON_INSTANCE_OPTIONS_H_
