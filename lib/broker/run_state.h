// The state machine of one training run: who is a member, which plan epoch is in force, what happens when somebody is lost.
//
// Pure: events in, actions out; no clock, thread, file or network. A shell (services/broker) feeds it and carries its actions out in order,
// so a whole run with its failures can be replayed from a list of events. Not thread-safe.
//
// Phases
//   kGathering    waits until every expected executor has joined, or the shell says enough have (JoinTimeout); again where one was lost
//                 while the others were measured, or while the first plan was made; and where all that have the data were lost later
//   kCalibrating  one executor after the other measures its ops, alone on its machine
//   kProbing      one pair of devices measures each link: of every ordered pair of sites, and of every line between devices
//   kPlanning     the scheduler has been asked for a plan
//   kLoading      the plan's executors build their stages and restore
//   kRunning      steps are being made
//   kDraining     a member of the epoch was lost or failed: the others stop before the next plan. Where no step was made since the last
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
// While it runs, the run watches itself (run_state_watch.cc): stages and links that fall behind the plan, and the loss under compression.
// From any phase: a refusal of the planner or an error that a retry cannot cure leads to kFailed.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lib/broker/data_stage_selector.h"
#include "lib/broker/events.h"
#include "lib/broker/min_model_memory.h"
#include "lib/broker/plan_monitor.h"
#include "lib/compression/guard_mode.h"
#include "lib/compression/loss_divergence_detector.h"
#include "lib/compression/spec.h"

namespace fusionllm::broker {

enum class Phase { kGathering, kCalibrating, kProbing, kPlanning, kLoading, kRunning, kDraining, kFinishing, kDone, kFailed };
const char* Name(Phase phase);

struct RunOptions {
  // Executors to wait for, spares included; empty: until JoinTimeout. One that is lost before the first plan is waited for again, for it
  // may be being started again.
  std::set<std::string> expected;
  // Executors, spares aside, to wait for besides; > 0: who may join is unknown, so no absence ends the run while it gathers.
  int min_executors = 0;
  std::set<std::string> data_devices;  // have the training data: no others take stage 0; empty: all have it
  double data_timeout_s = 0;           // for one of them to come back when all have been lost under the run; 0: they are not started again
  // How long to wait for an expected executor that is lost before the first step; then the others go on without it. 20 s are enough where
  // the same machine restarts its processes.
  double executor_timeout_s = 20;
  // Somebody (an operator) restarts lost executors. Then one that never joined is waited for without a limit. A plan that is refused for
  // want of lost ones, and a link that cannot be probed, are waited for as long as above; the run then ends as Unavailable, to be tried
  // again, not as infeasible.
  bool waits_for_executors = false;
  // Never take a stage, not even in need: devices that the job excludes, and those with less memory than it wants of any.
  std::set<std::string> excluded;
  int64_t min_executor_memory_bytes = 0;
  // What the job asks for, spec.strategy.stages and spec.executors.min: where a loss leaves less the new plan says so. 0: any number.
  int64_t stages_asked = 0, executors_asked = 0;
  MinModelMemory min_model_memory;  // of the model: where executors cannot have it they are not measured
  int64_t total_steps = 0;
  bool checkpoints = false;      // the job keeps checkpoints
  int64_t start_step = 0;        // steps already done by the checkpoint to resume from
  std::string start_checkpoint;  // its folder; empty: from the start
  int64_t micro_batch_size = 0;  // that it was trained with; 0: not known, or none
  std::string codec_limit;       // found by the run that made the checkpoint: compression::ToString; empty: none
  CodecLimits codec_limits;
  int max_recoveries = 100;
  compression::GuardMode guard = compression::GuardMode::kAuto;
  bool codecs_asked_for = false;  // the job names codec and ratio, and leaves no choice to the planner
  // Measured before: executors and links that these cover are not measured again.
  std::map<std::string, std::string> known_profiles;
  std::vector<Link> known_links;
  // Directed pairs of devices that are not joined by the link of their sites but by a line of this name, theirs alone or shared with some.
  Lines lines;
  // What must survive a restart of the broker; see journal.h.
  uint32_t last_epoch = 0;
  std::set<std::string> gone;  // executors whose processes are known to have ended: an adopted epoch does not wait for them
};

class RunState {
 public:
  explicit RunState(RunOptions options);

  // Resumes an epoch that was running when the broker stopped: its executors are awaited instead of gathered again. `shards`: those of this
  // epoch that had been reported and are in no checkpoint yet; `ended_at`: last steps of stages that had ended as ordered.
  void Adopt(uint32_t epoch, PlanSummary plan, std::map<std::string, std::string> profiles, std::vector<Link> links, int64_t last_step,
             std::vector<ShardWritten> shards = {}, std::map<std::string, int64_t> ended_at = {}, const std::string& codec_limit = "",
             CodecLimits codec_limits = {});

  std::vector<Action> On(const Event& event);

  // Whether the report is about a stage of the plan in force and comes from its executor, and names what that stage may write. The shell
  // asks before it keeps a report for its next life; On() asks by itself.
  bool IsCurrent(const ShardWritten& event) const;
  bool IsCurrent(const Ended& event) const;

  Phase phase() const { return phase_; }
  uint32_t epoch() const { return epoch_; }
  int64_t total_steps() const { return options_.total_steps; }
  int64_t last_step() const { return last_step_; }
  const PlanSummary& plan() const { return plan_; }
  const std::map<std::string, Member>& members() const { return members_; }
  const std::map<std::string, std::string>& profiles() const { return profiles_; }
  const std::vector<Link>& links() const { return links_; }
  const Lines& lines() const { return options_.lines; }
  std::string codec_limit() const;  // as RequestPlan has it
  const CodecLimits& codec_limits() const { return codec_limits_; }
  // Links, by their devices, whose measured rate is that of their wire; the others' is that of the queue of what they share it with.
  const PlanMonitor::Ends& representative_links() const { return plan_monitor_.representative_links(); }

 private:
  // "; fewer stages than spec.strategy.stages, 2, asks for, since executors were lost"; empty: the plan has what was asked for.
  std::string LessThanAskedFor() const;
  // The end of events about a rank that is needed no more.
  static constexpr char kNoLongerRequired[] = "; all steps of this plan had been made, so nothing is lost";

  // One handler per event; they append to actions_.
  void Handle(const Started& event);
  void Handle(const Joined& event);
  void Handle(const Left& event);
  void Handle(const JoinTimeout& event);
  void Handle(const Calibrated& event);
  void Handle(const LinkProbed& event);
  void Handle(const Planned& event);
  void Handle(const PlanRefused& event);
  void Handle(const AlternativePlanned& event);
  void Handle(const Ready& event);
  void Handle(const StepDone& event);
  void Handle(const StageMeasured& event);
  void Handle(const ShardWritten& event);
  void Handle(const CheckpointUnusable& event);
  void Handle(const CheckpointReplaced& event);
  void Handle(const CheckpointCommitted& event);
  void Handle(const Ended& event);
  void Handle(const StopAsked& event);
  void Handle(const TimerFired& event);

  void Do(Action action) { actions_.push_back(std::move(action)); }
  void Await(double seconds, std::string what);
  void Fail(absl::Status status, std::string refusal_reason = "");
  int RankOf(const std::string& name) const;   // -1: not in the plan
  int StageOf(const std::string& name) const;  // -1: not in the plan
  void SetStageAndReplica(int rank, EmitEvent& event) const;
  bool Present(const std::string& name) const { return members_.contains(name); }
  std::string IdleSpareFor(int rank) const;

  std::vector<std::string> Missing() const;
  bool LacksData() const;
  int64_t ExecutorsHere() const;  // spares left out
  bool IsComplete() const;
  bool OnlyDataIsMissing() const;  // of who is waited for before the first plan; none with the data has ever come
  void AwaitMembers();
  void EmitMissingData();
  void EmitWaitingForData(const std::string& how_long);
  bool AwaitLost(const std::string& why);
  bool RefuseTooLarge();
  bool ProbeAgainLater(const std::string& src, const std::string& dst, const std::string& why);
  void BeginWhenComplete();
  void BeginWithoutMissing();
  bool FailWithoutData();
  enum class Then : uint8_t { kRecover, kPlan };
  bool AwaitOrFailWithoutData(Then then);  // true: there is none, and the run waits for it or has failed
  bool HasData(const std::string& name) const { return options_.data_devices.contains(name); }
  std::vector<DataStageSelector::Reader> ReadersFor(const RequestPlan& question) const;
  void RejectUnfit(const std::string& name, const absl::Status& why);
  bool IsDispensable(const Member& member) const;
  void CalibrateNext();
  void ProbeFailed(const std::string& src, const std::string& dst, const absl::Status& why);
  const Member& SuspectOf(const std::string& src, const std::string& dst) const;
  void ProbeNext();
  void AskForPlan();
  void AskNextPlan();  // about the next that may read the data; or takes what was chosen
  void TakeSelectedPlan();
  void EmitDataStageSelected();
  void Take(PlanSummary plan);
  void Load();
  void EmitRestored(std::string message);
  void StartAll();
  std::string AtStage(const std::string& name, const absl::Status& why) const;  // "stage 1 on lab: why"
  void FailByStage(const std::string& name, const absl::Status& why);
  bool JoinedByItself(const std::string& name) const;  // to an open run, whose data it does not have
  void RejectFromPlan(const std::string& name, const absl::Status& why);
  void Drain(const std::string& why);
  void DrainedOne(const std::string& name);
  void Recover();
  void Retry();
  bool IsMeasured() const;  // all devices of the plan
  void AskForFigures();
  void TakeFigures(const PlanSummary& plan);
  void LoadOnSpares(bool figures_are_theirs);
  void FailUnanswered();
  void MaybeFinish();
  bool ReplicaZeroHasEnded() const;                           // all stages of it
  bool IsNoLongerRequired(int rank) const;                    // by the plan under way: its loss or error is only reported
  void EmitReplicaFailed(int rank, const std::string& what);  // of a rank that is needed no more
  void EndOtherReplicas(const std::string& why);  // once replica 0 has: counts all ranks as ended, and stops those that have not
  void EndLateReplicas();                         // the same, reported of each that has not
  void FinishWhenAllEnded();                      // to kFinishing
  bool IsOfItsStage(const ShardWritten& event) const;
  bool IsWhereItMayBe(const ShardFile& file, const ShardWritten& event) const;
  void Replace();
  void CommitIfComplete(int64_t step);
  // Whether of this step nothing is to be saved any more: a newer checkpoint is whole, or the one that was made of it.
  bool IsCoveredByCheckpoint(int64_t step) const { return !checkpoint_path_.empty() && step <= checkpoint_step_; }
  void AbandonCoveredSteps();
  void ResumeAdopted(bool time_is_up);

  // The run watches itself.
  struct PlanSwitch {
    std::string why;
    std::optional<PlanSummary> plan;  // none: to be asked for
  };
  void StartPlanMonitor();
  void EmitDrifts(const std::vector<Drift>& drifts);
  void TakeBackoffs(const StageMeasured& event);
  void EmitBackoff(const StageMeasured& event, const CodecBackoff& found);
  std::optional<compression::CodecSpec> MostAggressiveInForce() const;
  void WatchLoss(const StepRecord& record);
  void ConsiderPlanSwitch();
  bool BackOffFromNotFinite(const Ended& event);
  void EndEpochForPlanSwitch(PlanSwitch plan_switch);
  bool EndedForAnotherPlan() const;
  void SwitchPlan();
  bool AskNextAlternative();
  RequestPlan PlanQuestion(bool with_spares);  // without saying who reads the data
  void StartSelection(RequestPlan question, DataStageSelector::Objective objective);
  void NoteAsked(const RequestPlan& ask);
  void DeclineLateJoiners(const std::vector<std::string>& late_joiners, absl::string_view why);

  // Devices that come while the plan in force does with fewer than the run wants.
  bool MayTrain(const Member& member) const;  // by the job, in need
  int Trainers() const;                       // members that may and are no spares
  int Wanted() const;
  bool IsBelowWantedExecutors() const;
  bool SparesAreNeeded() const;                  // to make up for who is missing
  std::vector<std::string> LateJoiners() const;  // that no planner was asked about yet, or not for the last time
  bool LateJoinersAreMeasured();                 // there are some, and all is known that a planner must know; orders what is missing
  void HandleProbeDuringRun(const LinkProbed& event);
  std::string OutlookOf(const Member& member) const;
  double PlanSwitchSeconds(const PlanSummary& to) const;
  const std::string& SiteOf(const std::string& name) const;
  // A link between two sites, or inside one, is one resource for all that use it; so is a line.
  using Wire = std::tuple<std::string, std::string, std::string>;
  Wire WireOf(const std::string& src, const std::string& dst) const;
  Link* LinkBetween(const std::string& src, const std::string& dst);  // the measurement that speaks for a pair; null: none

  bool Measures() const { return phase_ == Phase::kCalibrating || phase_ == Phase::kProbing; }
  std::set<Wire> MeasuredWires() const;

  const RunOptions options_;
  Phase phase_ = Phase::kGathering;
  std::map<std::string, Member> members_;
  std::map<std::string, std::string> profiles_;
  std::vector<Link> links_;
  std::map<std::string, uint64_t> unfit_;  // executors that said that they cannot take part, and which life of theirs said so
  bool begun_ = false;                     // to measure: enough have joined
  bool gathering_over_ = false;            // as the shell says
  bool data_was_here_ = false;             // a device with the data has joined
  bool data_wait_announced_ = false;       // that one is waited for before the first plan
  uint64_t data_wait_notice_id_ = 0;       // of the timer until that is reported
  std::optional<Then> awaits_data_;        // kGathering, under a plan: for one of them to come back, and what comes then
  bool joined_since_asked_ = false;        // for a plan
  std::string awaits_lost_;                // kGathering: why no plan is possible without them; empty: one may be
  std::set<std::string> given_up_;         // expected executors that were lost before the first plan and did not come back
  // The executor that measures now: one at a time, whatever happens to the others meanwhile.
  std::string calibrating_;
  std::optional<std::pair<std::string, std::string>> probing_;
  struct FailedProbes {
    int count = 0;
    double waited_s = 0;  // between them
  };
  std::map<std::pair<std::string, std::string>, FailedProbes> probes_failed_;  // in a row, by their ends
  PlanSummary plan_;
  uint32_t epoch_ = 0;
  bool adopted_ = false;                // waiting for executors of an epoch that outlived the broker
  bool adopted_epoch_is_over_ = false;  // one of them came back without it
  uint32_t foreign_epoch_ = 0;          // newest that an executor runs and this broker knows nothing of
  bool stepped_ = false;                // a step of this run was made
  bool loaded_once_ = false;            // an epoch of this run had all its stages ready
  std::set<std::string> waiting_;       // for Ready, Ended or an adopted rejoin, by phase
  std::map<std::string, int64_t> ended_at_;
  int64_t last_step_ = 0;
  int64_t checkpoint_step_ = 0;
  std::string checkpoint_path_;
  // The checkpoint that was to be restored cannot be: another is looked for when all stages have stopped.
  std::optional<CheckpointUnusable> unusable_;
  bool replacing_ = false;
  std::map<int64_t, std::map<int, ShardWritten>> shards_;  // by step, stage
  std::set<int64_t> committing_;
  bool stop_asked_ = false;
  // The last checkpoint of the epoch under way cannot be saved, which fails the run once its stages have ended: the step may not have been
  // reported yet, and the evaluation after it needs no disk.
  struct LostCheckpoint {
    int64_t step = 0;
    absl::Status status;
  };
  std::optional<LostCheckpoint> last_checkpoint_lost_;
  bool plan_is_stale_ = false;     // no spare fitted: re-plan
  bool codecs_are_stale_ = false;  // too aggressive: re-plan
  int recoveries_ = 0;
  int retries_without_progress_ = 0;  // of these, since a step was made last
  std::string cause_;                 // of the last loss or failure that stages were stopped for
  bool retrying_ = false;             // kDraining: all have stopped, and the next try is waited for
  int64_t drained_at_step_ = 0;
  uint64_t expect_id_ = 0;
  PlanMonitor plan_monitor_;
  compression::LossDivergenceDetector trend_;
  std::string restored_message_;        // of the recovery under way, in words
  bool trend_warning_emitted_ = false;  // in this epoch, where nothing else can be done
  std::optional<compression::CodecSpec> codec_limit_;
  CodecLimits codec_limits_;                                     // that senders have found
  std::set<std::tuple<std::string, std::string, bool>> warned_;  // of (device, value, gradient) whose codec stays
  int backoffs_from_not_finite_ = 0;
  std::optional<PlanSwitch> plan_switch_;  // the epoch has been asked to end for it
  std::string plan_switch_reason_;         // for the announcement of the plan that was asked for
  uint64_t plans_asked_ = 0, alternatives_asked_ = 0;
  bool asks_for_figures_ = false;     // in kPlanning: the last question is about the stages that spares have taken
  std::vector<EmitEvent> activated_;  // these spares; reported when the figures are known
  bool awaits_alternative_ = false;
  DataStageSelector data_stage_selector_;   // of the question last asked, its round
  std::vector<std::string> devices_asked_;  // of the question last asked, less those that nothing is known of
  int executors_asked_ = 0;                 // of these, those that may train
  int most_trainers_ = 0;                   // that a plan of this run was made over
  std::set<std::string> no_trainers_;       // of all that have joined: spares, and whom the job does not want
  std::set<std::string> considered_;        // members in a question that has its last answer
  // Ways from stages to late joiners, on which nothing can be measured before the stages stop: the way back stands in for them until then.
  std::set<std::pair<std::string, std::string>> assumed_links_;
  // Devices that take so many times as long as their profiles say: known to the plan in force, and to the one last asked for.
  std::map<std::string, double> slowness_, slowness_asked_;
  double load_s_ = 0, shard_s_ = 0;  // the slowest stage's, last measured
  std::vector<Action> actions_;
};

}  // namespace fusionllm::broker
