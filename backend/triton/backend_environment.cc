#include "backend/triton/backend_environment.h"

#include "backend/engine/built_in_engines.h"

namespace seq2seq {

BackendEnvironment MakeBackendEnvironment() {
  return BackendEnvironment{.clock = std::make_shared<SteadyClock>(),
                            .load_checkpoint = Checkpoint::Load,
                            .make_engine_factory = MakeBuiltInEngines,
                            .has_cuda_engine = HasCudaEngine()};
}

}  // namespace seq2seq
