// What every engine must do, whatever it computes with: a suite that an engine's test instantiates.
//
//   INSTANTIATE_TEST_SUITE_P(Cpu, EngineConformanceTest, testing::Values(EngineMaker{"cpu",
//   Make}));
#ifndef SEQ2SEQ_BACKEND_TESTING_ENGINE_CONFORMANCE_H_
#define SEQ2SEQ_BACKEND_TESTING_ENGINE_CONFORMANCE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>

#include "backend/core/notifier.h"
#include "backend/core/status.h"
#include "backend/engine/engine.h"
#include "backend/model/checkpoint.h"
#include "backend/testing/engine_driver.h"

namespace seq2seq {

struct ConformanceOptions {
  int32_t max_slots = 6;
  int32_t max_source_tokens = 3000;
  int32_t max_decoder_tokens = 200;
  int64_t kv_cache_bytes = int64_t{8} << 20;
};

// Makes engines that compute in float32.
struct EngineMaker {
  std::string name;
  std::function<Result<std::unique_ptr<Engine>>(std::shared_ptr<const Checkpoint>,
                                                const ConformanceOptions&, Notifier*)>
      make;

  friend std::ostream& operator<<(std::ostream& out, const EngineMaker& maker) {
    return out << maker.name;
  }
};

// Over a tiny random checkpoint of 40 tokens, three decoder layers and three heads of four.
class EngineConformanceTest : public testing::TestWithParam<EngineMaker> {
 protected:
  void SetUp() override;
  // A new engine with options_.
  void Make();
  // What the request gets without company.
  DriverSequence Alone(const DriverRequest& request);

  Notifier notifier_;
  ConformanceOptions options_;
  std::shared_ptr<const Checkpoint> checkpoint_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<EngineDriver> driver_;
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_TESTING_ENGINE_CONFORMANCE_H_
