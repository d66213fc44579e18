// Whether the run leaves the plan in force for another one while its stages run, and why the next plan is another one.
//
// Stages and links that fall behind the plan are reported. Where one is slow, or devices have come that the plan does without, the planner
// is asked for an alternative, and where that pays the epoch ends at the boundary of a step with a checkpoint, so that nothing is lost. A
// run without checkpoints would lose all its steps: it only reports.
//
// Events in, verdicts out; its orders are RequestPlan, SendStop and what is reported. Not thread-safe.
//
//   state        event                                   next         action
//   any          BeginEpoch                              kMonitoring
//   kMonitoring  Ask                                     kAsking      RequestPlan with the next `alternative`
//   kAsking      OnAnswer, to this question              kMonitoring  true: it counts
//   others       OnAnswer                                unchanged    false
//   kMonitoring  Switch: the alternative pays            kSwitching   SendStop to the first stage, which ends the epoch
//   kAsking, kMonitoring
//                Switch: codecs are to be others         kSwitching   the same; an answer that comes yet does not count
//   kSwitching   TakeSwitch, once the epoch has ended    kMonitoring  the plan to go to, if one was chosen
//   kSwitching   ForgetSwitch, where it was lost first   kMonitoring
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "lib/broker/action_queue.h"
#include "lib/broker/executor_set.h"
#include "lib/broker/measurement.h"
#include "lib/broker/plan_epoch.h"
#include "lib/broker/plan_monitor.h"
#include "lib/broker/run_options.h"

namespace fusionllm::broker {

class Replanner {
 public:
  enum class State : uint8_t { kMonitoring, kAsking, kSwitching };
  struct PlanSwitch {
    std::string why;
    std::optional<RunPlan> plan;  // none: to be asked for
  };

  explicit Replanner(const RunOptions& options) : checkpoints_(options.checkpoints), total_steps_(options.total_steps) {}

  State state() const { return state_; }
  const PlanMonitor& monitor() const { return monitor_; }

  void BeginEpoch(const RunPlan& plan, const Measurement& measurement, const ExecutorSet& executors);
  void OnMeasured(const StageMeasured& event, const PlanEpoch& epoch, ActionQueue& queue);
  void OnStep(const StepRecord& record, const PlanEpoch& epoch, ActionQueue& queue);

  bool MayAsk(int64_t last_step) const;  // for an alternative: kMonitoring, and there are checkpoints, and steps left to gain by it
  // Whether it is time to; the asking is then noted. `late_joiners`: there are some, of which all is known that a planner must know.
  bool IsTimeToAsk(int64_t last_step, bool late_joiners) { return monitor_.AsksForAlternative(last_step, late_joiners); }
  // `shard_s`: seconds that a stage takes to save its shard.
  void Ask(RequestPlan request, const PlanEpoch& epoch, double shard_s, ActionQueue& queue);
  bool OnAnswer(uint64_t alternative);
  // The planner knows nothing that is worth a move.
  void OnRefused() { monitor_.ResetMigration(); }
  MigrationPolicy::Decision DecideMigration(const RunPlan& other, const PlanEpoch& epoch, double shard_s, std::string* figures);
  // The planner's last word on who has come: they get the reason why they idle, and are not asked about again.
  void Decline(const std::vector<std::string>& late_joiners, absl::string_view why, int64_t last_step, ExecutorSet& executors,
               ActionQueue& queue);
  std::string DescribeLateJoiner(const Executor& executor, const PlanEpoch& epoch,
                                 const ExecutorSet& executors) const;  // of one that comes late; or empty

  void Switch(PlanSwitch plan_switch, const PlanEpoch& epoch, ActionQueue& queue);
  std::optional<RunPlan> TakeSwitch();
  void ForgetSwitch();

  // The next plan: may it use spares, because none fitted; and is there to be one, because codecs are to be others?
  bool needs_spares() const { return needs_spares_; }
  bool needs_other_codecs() const { return needs_other_codecs_; }
  void NeedSpares(bool needed) { needs_spares_ = needed; }
  void NeedOtherCodecs(std::string why);
  // It is taken: why it is another one, in words; may be empty.
  std::string OnTaken();

 private:
  void EmitSlowdowns(const std::vector<Slowdown>& slowdowns, const PlanEpoch& epoch, ActionQueue& queue) const;
  double SwitchSeconds(const RunPlan& to, const PlanEpoch& epoch, double shard_s) const;

  bool checkpoints_ = false;
  int64_t total_steps_ = 0;

  State state_ = State::kMonitoring;
  PlanMonitor monitor_;
  uint64_t alternatives_asked_ = 0;
  std::optional<RunPlan> next_plan_;  // kSwitching: none where it is to be asked for
  std::string switch_why_;            // kSwitching
  std::string reason_;                // of the next plan
  bool needs_spares_ = false, needs_other_codecs_ = false;
};

}  // namespace fusionllm::broker
