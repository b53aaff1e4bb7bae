// What libtriton_seq2seq.so of the server tests runs on: the shipped engines, with faults.
#include <memory>
#include <utility>

#include "backend/engine/built_in_engines.h"
#include "backend/testing/faulty_engine.h"
#include "backend/triton/backend_environment.h"

namespace seq2seq {

BackendEnvironment MakeBackendEnvironment() {
  const auto clock = std::make_shared<SteadyClock>();
  const Result<EngineFaults> faults = EngineFaultsFromEnvironment();
  BackendEnvironment environment;
  environment.clock = clock;
  environment.has_cuda_engine = HasCudaEngine();
  environment.load_checkpoint =
      [faults](
          const std::filesystem::path& directory) -> Result<std::shared_ptr<const Checkpoint>> {
    if (!faults) return std::unexpected(faults.error());
    return Checkpoint::Load(directory);
  };
  environment.make_engine_factory =
      [faults,
       clock](std::shared_ptr<const Checkpoint> checkpoint) -> std::unique_ptr<EngineFactory> {
    return std::make_unique<FaultyEngineFactory>(MakeBuiltInEngines(std::move(checkpoint)), *faults,
                                                 clock);
  };
  return environment;
}

}  // namespace seq2seq
