#include "backend/triton/backend_environment.h"

namespace seq2seq {

BackendEnvironment MakeBackendEnvironment() {
  return BackendEnvironment{.clock = std::make_shared<SteadyClock>(),
                            .load_checkpoint = Checkpoint::Load,
                            .make_engine_factory = MakeEngineFactory};
}

}  // namespace seq2seq
