// Creates the engines of one model.
#ifndef SEQ2SEQ_BACKEND_ENGINE_ENGINE_FACTORY_H_
#define SEQ2SEQ_BACKEND_ENGINE_ENGINE_FACTORY_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "backend/core/dtype.h"
#include "backend/core/notifier.h"
#include "backend/core/status.h"
#include "backend/engine/engine.h"

namespace seq2seq {

enum class EngineKind : uint8_t { kCpu, kCuda };

// An instance's share of the model's configuration, validated.
struct EngineOptions {
  EngineKind kind = EngineKind::kCpu;
  int32_t device_id = 0;                  // CUDA only
  int32_t instances_on_device = 1;        // CUDA only: of this model; they share the KV memory
  int32_t max_active_sequences = 0;       // >= 1: slots
  int32_t max_source_tokens = 0;          // >= 1
  int32_t max_decoder_tokens = 0;         // >= 1: prefix and new tokens of one sequence together
  std::optional<int64_t> kv_cache_bytes;  // of this instance; absent: the engine's default
  std::optional<DType> weights_dtype;     // absent: as stored
  int32_t cpu_threads = 1;                // >= 1, CPU only
};

// Makes the engines of one model, and lets those on one device share their weights: the converted
// weights live as long as an engine that uses them. Safe from any thread.
class EngineFactory {
 public:
  virtual ~EngineFactory() = default;

  // A new engine. kUnsupported if this build or machine has none of that kind; kInvalidArgument if
  // the options don't fit the model or the machine (the message names the option).
  // `notifier` must outlive the engine.
  [[nodiscard]] virtual Result<std::unique_ptr<Engine>> Create(const EngineOptions& options,
                                                               Notifier* notifier) = 0;
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_ENGINE_ENGINE_FACTORY_H_
