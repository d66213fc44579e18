// The state machine of one training run: which executors take part, which plan epoch is in force, what happens when somebody is lost.
//
// Pure: events in, actions out; no clock, thread, file or network. A shell (services/broker) feeds it and carries its actions out in order,
// so a whole run with its failures can be replayed from a list of events. Not thread-safe.
//
// Phases
//   kGathering    waits until every expected executor has joined, or the shell says enough have (JoinTimeout); again where one was lost
//                 while the others were measured, or while the first plan was made; and where all that have the data were lost later
//   kCalibrating  one executor after the other measures its ops, alone on its machine
//   kProbing      one pair of devices measures each link: of every ordered pair of sites, and of every link with a name between devices
//   kPlanning     the scheduler has been asked for a plan
//   kLoading      the plan's executors build their stages and restore
//   kRunning      steps are being made
//   kDraining     an executor of the epoch was lost or failed: the others stop before the next plan. Where no step was made since the last
//                 recovery the next one waits, ever longer
//   kFinishing    all stages have ended; shards of the last checkpoint may still be under way. Where that is before the last step and
//                 no stop was asked for, the epoch ended in favour of another plan, which comes next. Of several replicas replica 0
//                 saves them: once all of its stages have ended (kRunning or here), the others may be lost without harm
//   kDone, kFailed  terminal
//
//            joined        measured       probed        planned      ready
// kGathering ----> kCalibrating ----> kProbing ----> kPlanning ----> kLoading ----> kRunning --ended--> kFinishing --> kDone
//                                                       ^                ^             |  lost
//                                                       | too few spares | spare       v
//                                                       +----------------+-------- kDraining
// From any phase: a refusal of the planner or an error that a retry cannot cure leads to kFailed.
//
// What happens to a run is decided by machines that know little of one another, each with its table of transitions:
//   executor_set.h     who takes part, and who of them may train
//   gathering.h        for whom the run waits while no stages run
//   measurement.h      devices and links, one after the other
//   plan_requests.h    questions to the planner
//   plan_epoch.h       the stages of the plan in force
//   run_checkpoints.h  shards, checkpoints, and which of them the next epoch begins from
//   recovery_policy.h  tries after losses and failures, spares
//   replanner.h        stages and links that fall behind, devices that come late: whether another plan pays
//   codec_backoffs.h   the loss under compression
// RunState hands events to them and acts on their verdicts; the phase is kLoading to kFinishing while PlanEpoch has stages to look after.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "lib/broker/action_queue.h"
#include "lib/broker/codec_backoffs.h"
#include "lib/broker/events.h"
#include "lib/broker/executor_set.h"
#include "lib/broker/gathering.h"
#include "lib/broker/measurement.h"
#include "lib/broker/plan_epoch.h"
#include "lib/broker/plan_requests.h"
#include "lib/broker/recovery_policy.h"
#include "lib/broker/replanner.h"
#include "lib/broker/run_checkpoints.h"
#include "lib/broker/run_options.h"

namespace fusionllm::broker {

enum class Phase { kGathering, kCalibrating, kProbing, kPlanning, kLoading, kRunning, kDraining, kFinishing, kDone, kFailed };
const char* Name(Phase phase);

class RunState {
 public:
  explicit RunState(RunOptions options);

  // Resumes an epoch that was running when the broker stopped: its executors are awaited instead of gathered again. `shards`: those of this
  // epoch that had been reported and are in no checkpoint yet; `ended_at`: last steps of stages that had ended as ordered.
  void Adopt(uint32_t epoch, RunPlan plan, std::map<std::string, std::string> profiles, std::vector<Link> links, int64_t last_step,
             std::vector<ShardWritten> shards = {}, std::map<std::string, int64_t> ended_at = {}, const std::string& codec_limit = "",
             CodecLimits codec_limits = {});

  std::vector<Action> On(const Event& event);

  // Whether the report is about a stage of the plan in force and comes from its executor, and names what that stage may write. The shell
  // asks before it keeps a report for its next life; On() asks by itself.
  bool IsCurrent(const ShardWritten& event) const { return IsCurrentShard(event, epoch_, executors_); }
  bool IsCurrent(const StageEnded& event) const { return epoch_.IsCurrent(event); }

  Phase phase() const;
  uint32_t epoch() const { return epoch_.number(); }
  int64_t total_steps() const { return options_.total_steps; }
  int64_t last_step() const { return epoch_.last_step(); }
  const RunPlan& plan() const { return epoch_.plan(); }
  const std::map<std::string, Executor>& executors() const { return executors_.present(); }
  const std::map<std::string, std::string>& profiles() const { return measurement_.profiles(); }
  const std::vector<Link>& links() const { return measurement_.links(); }
  const LinkNames& link_names() const { return options_.link_names; }
  std::string codec_limit() const { return codecs_.limit(); }  // as RequestPlan has it
  const CodecLimits& codec_limits() const { return codecs_.limits(); }
  // Links, by their devices, whose measured rate is that of their shared link; the others' is that of the queue of what they share it with.
  const PlanMonitor::LinkSet& representative_links() const { return replanner_.monitor().representative_links(); }

 private:
  // One handler per event; they append to queue_.
  void Handle(const Started& event);
  void Handle(const ExecutorJoined& event);
  void Handle(const ExecutorLeft& event);
  void Handle(const JoinTimeout& event);
  void Handle(const Calibrated& event);
  void Handle(const LinkProbed& event);
  void Handle(const Planned& event);
  void Handle(const PlanRefused& event);
  void Handle(const AlternativePlanned& event);
  void Handle(const StageReady& event);
  void Handle(const StepDone& event);
  void Handle(const StageMeasured& event);
  void Handle(const ShardWritten& event);
  void Handle(const CheckpointUnusable& event);
  void Handle(const CheckpointReplaced& event);
  void Handle(const CheckpointCommitted& event);
  void Handle(const StageEnded& event);
  void Handle(const StopRequested& event);
  void Handle(const TimerFired& event);

  void Push(Action action) { queue_.Push(std::move(action)); }
  void Enter(Phase phase);  // one in which no epoch is under way
  void Fail(absl::Status status, std::string refusal_reason = "");
  void Finished();  // without an error, as far as it has come
  bool IsOver() const { return phase_ == Phase::kDone || phase_ == Phase::kFailed; }
  bool Measures() const { return phase() == Phase::kCalibrating || phase() == Phase::kProbing; }
  RunPosition Position() const;

  // Executors.
  void Follow(const Gathering::Verdict& verdict);
  void OnExecutorsChanged();
  void AwaitExecutors();
  bool AwaitsData(Gathering::State then);  // true: there is none, and the run waits for it or has failed
  bool AwaitLost(const std::string& why);  // false: there is nothing to wait for
  void RejectUnfit(const std::string& name, const absl::Status& why);
  void RejectExecutor(const std::string& name, const std::string& why);
  void ResumeAdopted(bool time_is_up);

  // To the next plan.
  bool RefuseTooLarge();
  void MeasureNext();  // then the plan is asked for
  void OnProbeFailed(const std::string& src, const std::string& dst, const absl::Status& why);
  void OnProbedDuringRun(const LinkProbed& event);
  RequestPlan ComposeRequest(bool with_spares);
  void Select(RequestPlan request, DataStageSelector::Objective objective);
  void AskForPlan();
  void AskNextPlan();  // about the next that may read the data; or takes what was chosen
  void TakeSelectedPlan();
  void Take(RunPlan plan);

  // An epoch.
  void Load();
  void BeginMonitoring();
  void StartAll();
  void FailByStage(const std::string& name, const absl::Status& why);
  void OnStageFailed(const StageEnded& event);
  void EndOtherReplicas(const std::string& why);  // once replica 0 has ended
  void FinishWhenAllEnded();
  void CommitIfComplete(int64_t step);
  bool EndedForAnotherPlan() const;
  void MaybeFinish();
  void Drain(const std::string& why);
  void OnStopped(const std::string& name);
  void Recover();
  void Retry();  // with who is there now
  void LoadOnSpares(bool figures_are_theirs);

  // Another plan while it runs.
  void ConsiderPlanSwitch();
  bool AskNextAlternative();
  void SwitchPlan();

  const RunOptions options_;
  ActionQueue queue_;
  Phase phase_ = Phase::kGathering;  // while no epoch is under way
  bool stop_requested_ = false;
  ExecutorSet executors_;
  Gathering gathering_;
  Measurement measurement_;
  PlanRequests requests_;
  PlanEpoch epoch_;
  RunCheckpoints checkpoints_;
  RecoveryPolicy recovery_;
  Replanner replanner_;
  CodecBackoffs codecs_;
};

}  // namespace fusionllm::broker
