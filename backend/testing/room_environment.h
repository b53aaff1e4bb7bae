// Fakes in the places of engine, checkpoint and clock, for tests of the Triton room.
#ifndef SEQ2SEQ_BACKEND_TESTING_ROOM_ENVIRONMENT_H_
#define SEQ2SEQ_BACKEND_TESTING_ROOM_ENVIRONMENT_H_

#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "backend/core/clock.h"
#include "backend/core/status.h"
#include "backend/model/checkpoint.h"
#include "backend/testing/fake_engine_factory.h"
#include "backend/triton/backend_environment.h"

namespace seq2seq {

// While one lives, it is what MakeBackendEnvironment() hands out (C entry points leave no other
// way). It must outlive the backend.
class RoomEnvironment {
 public:
  explicit RoomEnvironment(const FakeEngineOptions& engines);
  ~RoomEnvironment();
  RoomEnvironment(const RoomEnvironment&) = delete;
  RoomEnvironment& operator=(const RoomEnvironment&) = delete;

  // Before the backend starts.
  void UseClock(std::shared_ptr<const Clock> clock) { clock_ = std::move(clock); }
  void UseCheckpoint(std::shared_ptr<const Checkpoint> checkpoint) {
    checkpoint_ = std::move(checkpoint);
  }
  void PretendCudaEngine() { has_cuda_engine_ = true; }
  void FailCheckpoint(Error error) { checkpoint_error_ = std::move(error); }
  void ThrowFromCheckpoint() { throw_ = true; }

  // The engines of all models.
  FakeEngineFactory& engines() { return *engines_; }
  const std::vector<std::filesystem::path>& loaded() const { return loaded_; }

  BackendEnvironment Make();

 private:
  Result<std::shared_ptr<const Checkpoint>> Load(const std::filesystem::path& directory);

  std::shared_ptr<FakeEngineFactory> engines_;
  std::shared_ptr<const Clock> clock_ = std::make_shared<SteadyClock>();
  std::shared_ptr<const Checkpoint> checkpoint_;
  std::optional<Error> checkpoint_error_;
  bool throw_ = false;
  bool has_cuda_engine_ = false;
  std::vector<std::filesystem::path> loaded_;
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_TESTING_ROOM_ENVIRONMENT_H_
