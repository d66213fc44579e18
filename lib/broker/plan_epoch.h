// One plan in force at a time, numbered by epoch: which of its stages are ready, have stopped or have ended, and how far it has come.
//
// Events in, facts out; its orders are SendAbort to stages that are to stop, and what is reported of some. Not thread-safe.
//
//   state         event                                     next        what happens
//   any           Adopt                                     kRejoining  an epoch that outlived its broker: its executors are awaited
//   any           Adopt, a process of it is known as gone   kBroken     it cannot go on
//   kRejoining    OnRejoined, running the epoch             kRejoining  one less is awaited
//   kRejoining    OnLost                                    kRejoining  one more is
//   kRejoining    OnRejoined of a stage without it, Break   kBroken
//   kRejoining    Resume, once CanResume()                  kRunning
//   any           Begin                                     kLoading    the next number; all stages are awaited
//   kLoading      OnReady of the last one, Start            kRunning
//   kRunning      OnEnded of all stages, End                kEnded
//   kLoading, kRunning, kEnded, kRejoining, kBroken
//                 Drain                                     kStopping   SendAbort to those present that have not ended
//   kStopping     OnStopped of the last one                 kStopping   true: the next plan may come
//   any           Pause                                     kPausing    all have stopped, and the next try is waited for
//   any           Leave                                     kNone       something else is done about the run
// Reports of stages are compared with its number and their senders with the plan first (IsCurrent, OnStep): late ones change nothing.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lib/broker/action_queue.h"
#include "lib/broker/executor_set.h"
#include "lib/broker/run_options.h"

namespace fusionllm::broker {

// The end of events about a rank that is needed no more.
inline constexpr char kNoLongerRequired[] = "; all steps of this plan had been made, so nothing is lost";

class PlanEpoch {
 public:
  enum class State : uint8_t { kNone, kRejoining, kBroken, kLoading, kRunning, kStopping, kPausing, kEnded };

  explicit PlanEpoch(const RunOptions& options);
  void Adopt(uint32_t number, RunPlan plan, int64_t last_step, std::map<std::string, int64_t> ended_at);

  State state() const { return state_; }
  bool adopted() const { return state_ == State::kRejoining || state_ == State::kBroken; }
  bool runs() const { return state_ == State::kRunning; }
  uint32_t number() const { return number_; }
  int64_t last_step() const { return last_step_; }
  const RunPlan& plan() const { return plan_; }
  bool planned() const { return !plan_.devices.empty(); }
  bool stepped() const { return stepped_; }          // a step of this run was made
  bool loaded_once() const { return loaded_once_; }  // an epoch of this run had all its stages ready
  double load_s() const { return load_s_; }          // of the slowest stage, of the newest epoch

  // The plan, between two epochs.
  void SetPlan(RunPlan plan) { plan_ = std::move(plan); }
  void SetFigures(const RunPlan& plan);  // the same stages on the same devices, as they are expected to do now
  void SetDevice(int rank, const std::string& device);

  // An adopted epoch.
  void RecordForeign(uint32_t number);  // an executor runs it, and this broker knows nothing of it: no later number is its
  void OnRejoined(const std::string& name, uint32_t number);
  void OnLost(const std::string& name);      // it may come back yet
  void Break() { state_ = State::kBroken; }  // one of its executors has failed
  bool CanResume() const { return state_ == State::kRejoining && waiting_.empty(); }
  void Resume() { state_ = State::kRunning; }
  void EmitAbsent(const ExecutorSet& executors, ActionQueue& queue) const;  // who was lost while no broker was there

  // True: the first one of this broker.
  bool Begin(int64_t checkpoint_step);
  bool OnReady(const std::string& name, double load_s);  // true: all stages are
  void Start();
  // Whether the record is news of the first stage, of replica 0; it is then noted.
  bool OnStep(const StepDone& event);

  void Drain(const std::string& why, const ExecutorSet& executors, ActionQueue& queue);
  bool AllStopped() const { return waiting_.empty(); }
  bool OnStopped(const std::string& name);  // true: all have, and nothing else is waited for
  const std::set<std::string>& waiting() const { return waiting_; }
  void Pause() { state_ = State::kPausing; }
  void Leave() { state_ = State::kNone; }

  // The report is about this epoch, from a stage of it, and about a step that the run has.
  bool IsCurrent(const StageEnded& event) const;
  bool IsCurrent(const ShardWritten& event) const;  // of a stage of replica 0, which writes for all
  void OnEnded(const std::string& name, int64_t step) { ended_at_[name] = step; }
  bool AllEnded() const { return ended_at_.size() >= plan_.devices.size(); }
  void End() { state_ = State::kEnded; }
  bool EndedBeforeLastStep() const;       // replica 0, and nothing went on to the last step of the run
  bool ReplicaZeroHasEnded() const;       // all stages of it
  int64_t LastStepOfReplicaZero() const;  // its last step
  // Replica 0 alone evaluates and saves checkpoints, and needs the others for its sums. But until each of its stages has ended, a lost
  // replica of it is a lost peer, which ends it. So what befalls the rank is only reported.
  bool IsNoLongerRequired(int rank) const;
  std::vector<int> UnfinishedRanks() const;                                             // of other replicas, that have not ended
  void EmitReplicaFailed(int rank, const std::string& what, ActionQueue& queue) const;  // of one that is no longer required
  // Counts the other replicas as ended, and aborts those present that have not.
  void EndOtherReplicas(const std::string& why, const ExecutorSet& executors, ActionQueue& queue);

  std::string AtStage(const std::string& name, const absl::Status& why) const;  // "stage 1 on lab: why"

 private:
  int64_t total_steps_ = 0, start_step_ = 0;
  uint32_t first_number_ = 0;  // before the first epoch of this broker
  std::set<std::string> lost_executors_;

  State state_ = State::kNone;
  RunPlan plan_;
  uint32_t number_ = 0;
  uint32_t foreign_ = 0;           // newest that is not of this broker
  std::set<std::string> waiting_;  // executors that have not come back (adopted), are not ready (kLoading), have not stopped (kStopping)
  std::map<std::string, int64_t> ended_at_;  // by executor, the step after which its stage ended as ordered
  int64_t last_step_ = 0;
  bool stepped_ = false, loaded_once_ = false;
  double load_s_ = 0;
};

}  // namespace fusionllm::broker
