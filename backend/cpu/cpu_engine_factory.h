// The CPU engines of one model.
#ifndef SEQ2SEQ_BACKEND_CPU_CPU_ENGINE_FACTORY_H_
#define SEQ2SEQ_BACKEND_CPU_CPU_ENGINE_FACTORY_H_

#include <memory>

#include "backend/engine/engine_factory.h"
#include "backend/model/checkpoint.h"

namespace seq2seq {

// Its engines of one dtype share their weights. EngineOptions::kind is not looked at.
std::unique_ptr<EngineFactory> MakeCpuEngineFactory(std::shared_ptr<const Checkpoint> checkpoint);

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_CPU_CPU_ENGINE_FACTORY_H_
