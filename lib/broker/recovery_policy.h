// What is done once the stages of a plan epoch have stopped because one was lost or has failed: how long the next try waits, how many there
// are, and which spares take the stages of lost devices over.
//
// Events in, verdicts out; it orders nothing but what is reported. Not thread-safe.
//
//   state                            event            next                         what happens
//   tries without progress: n        OnStep           0                            a step was made: what is restored next is reported again
//   n                                OnAwaited        0                            what was missing has been waited for
//   n                                CheckRetryLim it n                            Unavailable once there were max_recoveries in all
//   n                                ScheduleRetry    n + 1                        Recovering; RetrySeconds(n), less after a loss
//   spares that took stages over: S  ReplaceLost      S and a spare for each lost  false: for one there is none
//   S                                EmitActivated    none                         SpareActivated of each
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lib/broker/action_queue.h"
#include "lib/broker/executor_set.h"
#include "lib/broker/plan_epoch.h"
#include "lib/broker/run_options.h"

namespace fusionllm::broker {

class RecoveryPolicy {
 public:
  explicit RecoveryPolicy(const RunOptions& options);

  // Stages are stopped for `why`, which is reported when they have.
  void OnStopping(const std::string& why, int64_t last_step);
  void OnStep();
  void OnAwaited() { retries_without_progress_ = 0; }

  absl::Status CheckRetryLimit();
  // Seconds until the next try. `lost`: devices of the plan are, so that the next one is another plan.
  double ScheduleRetry(bool lost, ActionQueue& queue);
  // What the epoch begins with; once where several tries are needed until a step is made.
  void EmitRestored(int64_t step, std::string message, ActionQueue& queue);

  // Puts idle executors in the place of devices that are not present, in order of ranks, until there is none.
  bool ReplaceLost(PlanEpoch& epoch, const ExecutorSet& executors);
  bool any_activated() const { return !activated_.empty(); }
  // `figures_are_theirs`: the plan's predictions are of the spares.
  void EmitActivated(bool figures_are_theirs, ActionQueue& queue);
  void ForgetActivated() { activated_.clear(); }

 private:
  std::string IdleSpareFor(int rank, const RunPlan& plan, const ExecutorSet& executors) const;  // empty: none

  std::set<std::string> excluded_;
  int64_t min_memory_bytes_ = 0;
  bool data_is_asked_for_ = false;  // only some devices have it
  int max_recoveries_ = 0;

  int recoveries_ = 0;
  int retries_without_progress_ = 0;  // of these, since a step was made last
  std::string cause_;                 // of the last loss or failure that stages were stopped for
  int64_t stopped_at_step_ = 0;
  std::string restored_message_;      // of the recovery under way
  std::vector<EmitEvent> activated_;  // spares; reported when the figures of the plan are known
};

}  // namespace fusionllm::broker
