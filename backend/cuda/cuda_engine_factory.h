// The CUDA engines of one model. Free of CUDA's headers, so that builds without CUDA include it
// too.
#ifndef SEQ2SEQ_BACKEND_CUDA_CUDA_ENGINE_FACTORY_H_
#define SEQ2SEQ_BACKEND_CUDA_CUDA_ENGINE_FACTORY_H_

#include <memory>

#include "backend/engine/engine_factory.h"
#include "backend/model/checkpoint.h"

namespace seq2seq {

// Whether MakeCudaEngineFactory() makes one: false in a build without CUDA.
extern const bool kHasCudaEngine;

// Its engines of one dtype on one device share their weights, and, where kv_cache_bytes is absent,
// divide the memory that those leave free. EngineOptions::kind is not looked at. Null in a build
// without CUDA.
std::unique_ptr<EngineFactory> MakeCudaEngineFactory(std::shared_ptr<const Checkpoint> checkpoint);

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_CUDA_CUDA_ENGINE_FACTORY_H_
