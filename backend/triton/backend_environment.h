// What the Triton room takes from the rest of the library: the seam at which tests put fakes in.
#ifndef SEQ2SEQ_BACKEND_TRITON_BACKEND_ENVIRONMENT_H_
#define SEQ2SEQ_BACKEND_TRITON_BACKEND_ENVIRONMENT_H_

#include <filesystem>
#include <functional>
#include <memory>

#include "backend/core/clock.h"
#include "backend/core/status.h"
#include "backend/engine/engine_factory.h"
#include "backend/model/checkpoint.h"

namespace seq2seq {

struct BackendEnvironment {
  std::shared_ptr<const Clock> clock;  // must be monotonic in the manner of std::steady_clock
  std::function<Result<std::shared_ptr<const Checkpoint>>(const std::filesystem::path& directory)>
      load_checkpoint;
  std::function<std::unique_ptr<EngineFactory>(std::shared_ptr<const Checkpoint> checkpoint)>
      make_engine_factory;
  bool has_cuda_engine =
      false;  // then models without an instance group go to GPUs where there are any
};

// Called once, when the server loads the library. Each library links one definition: what is
// shipped has backend_environment.cc; backend/testing has those of the test libraries.
BackendEnvironment MakeBackendEnvironment();

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_TRITON_BACKEND_ENVIRONMENT_H_
