// An EngineFactory whose engines are fakes.
#ifndef SEQ2SEQ_BACKEND_TESTING_FAKE_ENGINE_FACTORY_H_
#define SEQ2SEQ_BACKEND_TESTING_FAKE_ENGINE_FACTORY_H_

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "backend/engine/engine_factory.h"
#include "backend/testing/fake_engine.h"

namespace seq2seq {

// Engines keep a shared part of themselves alive here, so that a test can command them while they
// live and read their violations after they are gone. Safe from any thread.
class FakeEngineFactory final : public EngineFactory {
 public:
  // Each engine has `options`, but max_slots is the instance's max_active_sequences, and
  // total_blocks follows from kv_cache_bytes, where given, at kBytesPerBlock.
  explicit FakeEngineFactory(FakeEngineOptions options) : options_(options) {}

  static constexpr int64_t kBytesPerBlock = 1024;

  Result<std::unique_ptr<Engine>> Create(const EngineOptions& options, Notifier* notifier) override;

  // Create() fails with `error` from now on; with nothing it works again.
  void FailCreate(std::optional<Error> error);

  // The engines created so far, in order. A FakeEngine here stays valid as long as the factory, but
  // after its owner let go of it, only violations() and the counts mean anything.
  std::vector<FakeEngine*> engines() const;
  std::vector<EngineOptions> requested() const;
  // Of all engines.
  std::vector<std::string> violations() const;

 private:
  const FakeEngineOptions options_;
  mutable std::mutex mutex_;
  std::optional<Error> fail_create_;
  std::vector<std::shared_ptr<FakeEngine>> engines_;
  std::vector<EngineOptions> requested_;
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_TESTING_FAKE_ENGINE_FACTORY_H_
