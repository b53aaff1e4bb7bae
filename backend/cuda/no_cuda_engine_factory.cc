// Builds without CUDA link this instead of cuda_engine_factory.cc.
#include "backend/cuda/cuda_engine_factory.h"

namespace seq2seq {

const bool kHasCudaEngine = false;

std::unique_ptr<EngineFactory> MakeCudaEngineFactory(std::shared_ptr<const Checkpoint>) {
  return nullptr;
}

}  // namespace seq2seq
