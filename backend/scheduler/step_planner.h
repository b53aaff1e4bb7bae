// Decides which sequences are in the next step, launches it, and remembers who was in it.
#ifndef SEQ2SEQ_BACKEND_SCHEDULER_STEP_PLANNER_H_
#define SEQ2SEQ_BACKEND_SCHEDULER_STEP_PLANNER_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "backend/core/status.h"
#include "backend/engine/engine.h"
#include "backend/engine/step.h"
#include "backend/scheduler/sequence_table.h"

namespace seq2seq {

// A step whose result has come.
struct EndedStep {
  const StepResult& result;
  std::span<Sequence* const> rows;  // the plan's; they no longer count the step as in flight
};

// One thread. All room is made at construction.
class StepPlanner {
 public:
  // Both outlive the planner.
  StepPlanner(Engine* engine, SequenceTable* table);

  // Launches as many steps as the engine takes and there are rows for. Encoded sequences get free
  // slots in order of arrival, so newcomers join at every step. A sequence whose steps in flight
  // will bring it to max_new_tokens has no row. An error means that the engine has failed.
  [[nodiscard]] Status LaunchSteps();

  // The oldest step that has ended since; valid until the next call of either.
  std::optional<EndedStep> Poll();

  uint64_t launches() const { return launches_; }
  bool in_flight() const { return flying_count_ > 0; }

 private:
  void Plan();
  void AddBind(Sequence* sequence);

  Engine* const engine_;
  SequenceTable* const table_;
  StepPlan plan_;
  StepResult result_;
  std::vector<std::vector<Sequence*>> flying_;  // a ring: the rows of each step in flight
  size_t oldest_ = 0;
  size_t flying_count_ = 0;
  uint64_t launches_ = 0;
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_SCHEDULER_STEP_PLANNER_H_
