// The engines that this library was built with: the only place that knows which there are.
#ifndef SEQ2SEQ_BACKEND_ENGINE_BUILT_IN_ENGINES_H_
#define SEQ2SEQ_BACKEND_ENGINE_BUILT_IN_ENGINES_H_

#include <memory>

#include "backend/engine/engine_factory.h"
#include "backend/model/checkpoint.h"

namespace seq2seq {

// Whether this build has the CUDA engine. Says nothing about the machine.
bool HasCudaEngine();

// A factory of all kinds of engines of one model. Reads nothing and touches no device yet.
std::unique_ptr<EngineFactory> MakeBuiltInEngines(std::shared_ptr<const Checkpoint> checkpoint);

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_ENGINE_BUILT_IN_ENGINES_H_
