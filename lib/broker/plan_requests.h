// Questions to the planner and its answers: for a plan, asked about one after the other of those who may read the training data; for what a
// plan is expected to do on the spares that have taken stages over; and, while stages run, for another plan (Replanner decides when).
//
// Events in, verdicts out; its orders are RequestPlan and its timers. An answer to any question but the last one does not count. Not
// thread-safe.
//
//   state     event                                            next      verdict, action
//   kNone     Answers                                          kNone     false
//   any       Select, then AskNext                             kPlan     RequestPlan about the next reader, and its timer
//   kPlan     Planned, Refused, then AskNext                   kPlan     the next RequestPlan; false: nothing is left to ask
//   kPlan     its timer, where there is a plan already         kPlan     that one is taken
//   any       AskForFigures                                    kFigures  RequestPlan with `figures_only`
//   kFigures  the answer, its timer                            kFigures  the epoch begins
//   kPlan     OnJoined                                         kPlan     joined_since_asked(): if all is refused it is asked again
//   any       Select, then NextAlternative                     any       the next question, while the plan in force goes on
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lib/broker/action_queue.h"
#include "lib/broker/data_stage_selector.h"
#include "lib/broker/executor_set.h"
#include "lib/broker/measurement.h"
#include "lib/broker/plan_epoch.h"
#include "lib/broker/run_options.h"

namespace fusionllm::broker {

class PlanRequests {
 public:
  enum class State : uint8_t { kNone, kPlan, kFigures };

  explicit PlanRequests(const RunOptions& options);

  bool AsksForFigures() const { return state_ == State::kFigures; }
  bool Answers(uint64_t id) const { return state_ != State::kNone && id == asked_; }
  void OnJoined() { joined_since_asked_ = true; }
  void OnLost(const std::string& name) { selector_.Lost(name); }

  // About the executors, without saying who reads the data. `slowness`: of devices of the plan in force, over what it counts on.
  RequestPlan Compose(bool with_spares, const std::map<std::string, double>& slowness, const std::string& codec_limit,
                      const PlanEpoch& epoch, const ExecutorSet& executors);
  void Select(RequestPlan request, DataStageSelector::Objective objective, const std::map<std::string, double>& slowness,
              const PlanEpoch& epoch, const ExecutorSet& executors, const Measurement& measurement);
  void BeginPlanning();              // what follows is asked before the next epoch
  bool AskNext(ActionQueue& queue);  // false: nothing is left to ask
  void AskForFigures(RequestPlan request, const RunPlan& plan, ActionQueue& queue);
  // While the plan in force goes on; none: nothing is left to ask.
  std::optional<RequestPlan> NextAlternative(const ExecutorSet& executors, const Measurement& measurement);

  void Planned(const RunPlan& plan) { selector_.Planned(plan); }
  void Refused(const std::string& reason, const std::string& message) { selector_.Refused(reason, message); }
  bool has_plan() const { return selector_.has_plan(); }
  bool joined_since_asked() const { return joined_since_asked_; }  // then another question may be answered otherwise
  std::string RefusalReason() const { return selector_.RefusalReason(); }
  std::string RefusalMessage() const { return selector_.RefusalMessage(); }

  // What is taken of the answers, has_plan().
  RunPlan Selected(const ExecutorSet& executors, const Measurement& measurement);
  void SetExecutors(RunPlan& plan, const ExecutorSet& executors) const;  // that it was made over
  void EmitDataStageSelected(int64_t last_step, ActionQueue& queue) const;
  // Devices of the question last asked, less those that nothing is known of.
  const std::vector<std::string>& devices_asked() const { return devices_asked_; }
  void TakeSlowness() { slowness_ = slowness_asked_; }  // the plan in force is to know it
  // For people: "2 stages on a0, b0", how its micro-batches are others than before, `why`, and what it has less of than the job asks for.
  std::string Describe(const RunPlan& taken, const RunPlan& before, const std::string& why, const ExecutorSet& executors) const;

 private:
  std::vector<DataStageSelector::Reader> ReadersFor(const RequestPlan& request, const std::map<std::string, double>& slowness,
                                                    const PlanEpoch& epoch, const ExecutorSet& executors,
                                                    const Measurement& measurement) const;
  std::string LessThanAskedFor(const RunPlan& plan, const ExecutorSet& executors) const;
  void NoteAsked(const RequestPlan& request, const ExecutorSet& executors, const Measurement& measurement);

  std::set<std::string> data_devices_;
  int64_t micro_batch_size_ = 0;
  int64_t min_stages_ = 0, min_executors_ = 0;  // that the job asks for

  State state_ = State::kNone;
  uint64_t asked_ = 0;  // number of the last question
  bool joined_since_asked_ = false;
  DataStageSelector selector_;  // of the last question
  std::vector<std::string> devices_asked_;
  int executors_asked_ = 0;  // of these, those that may train
  // Devices that take so many times as long as their profiles say: known to the plan in force, and to the one last asked for.
  std::map<std::string, double> slowness_, slowness_asked_;
};

}  // namespace fusionllm::broker
