#include "lib/broker/plan_epoch.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"

namespace fusionllm::broker {

PlanEpoch::PlanEpoch(const RunOptions& options)
    : total_steps_(options.total_steps),
      start_step_(options.start_step),
      first_number_(options.last_epoch),
      lost_executors_(options.lost_executors),
      number_(options.last_epoch),
      last_step_(options.start_step) {}

void PlanEpoch::Adopt(uint32_t number, RunPlan plan, int64_t last_step, std::map<std::string, int64_t> ended_at) {
  number_ = number;
  plan_ = std::move(plan);
  last_step_ = last_step;
  stepped_ = last_step > start_step_;
  ended_at_ = std::move(ended_at);
  loaded_once_ = true;
  waiting_ = {plan_.devices.begin(), plan_.devices.end()};
  const bool broken =
      std::any_of(plan_.devices.begin(), plan_.devices.end(), [this](const std::string& name) { return lost_executors_.contains(name); });
  state_ = broken ? State::kBroken : State::kRejoining;
}

void PlanEpoch::SetFigures(const RunPlan& plan) {
  const int executors = plan_.executors, wanted = plan_.desired_executors;
  plan_ = plan;
  plan_.executors = executors;
  plan_.desired_executors = wanted;
}

void PlanEpoch::SetDevice(int rank, const std::string& device) { plan_.devices[static_cast<size_t>(rank)] = device; }

void PlanEpoch::RecordForeign(uint32_t number) { foreign_ = std::max(foreign_, number); }

void PlanEpoch::OnRejoined(const std::string& name, uint32_t number) {
  if (number == number_) {
    waiting_.erase(name);
  } else if (plan_.Uses(name)) {
    state_ = State::kBroken;
  }
}

void PlanEpoch::OnLost(const std::string& name) {
  if (plan_.Uses(name)) waiting_.insert(name);
}

void PlanEpoch::EmitAbsent(const ExecutorSet& executors, ActionQueue& queue) const {
  for (int rank = 0; rank < static_cast<int>(plan_.devices.size()); ++rank) {
    const std::string& name = plan_.devices[static_cast<size_t>(rank)];
    if (executors.IsPresent(name)) continue;
    EmitEvent lost{
        .reason = "ExecutorLost",
        .step = last_step_,
        .message = absl::StrFormat("%s (%s) was lost while the broker was away, after step %d", name, plan_.Describe(rank), last_step_),
        .device = name};
    SetStageAndReplica(plan_, rank, lost);
    queue.Push(std::move(lost));
  }
}

bool PlanEpoch::Begin(int64_t checkpoint_step) {
  const bool first = number_ == first_number_;
  number_ = std::max(number_, foreign_) + 1;
  state_ = State::kLoading;
  last_step_ = checkpoint_step;
  ended_at_.clear();
  waiting_ = {plan_.devices.begin(), plan_.devices.end()};
  load_s_ = 0;
  return first;
}

bool PlanEpoch::OnReady(const std::string& name, double load_s) {
  load_s_ = std::max(load_s_, load_s);
  waiting_.erase(name);
  return waiting_.empty();
}

void PlanEpoch::Start() {
  state_ = State::kRunning;
  loaded_once_ = true;
}

bool PlanEpoch::OnStep(const StepDone& event) {
  if (event.epoch != number_ || plan_.RankOf(event.name) != 0) return false;
  if (event.record.step <= last_step_ || event.record.step > total_steps_) return false;
  // Executors that come back to a restarted broker repeat what it has not acknowledged, perhaps before the others are there.
  if (!runs() && state_ != State::kEnded && !adopted()) return false;
  last_step_ = event.record.step;
  stepped_ = true;
  return true;
}

void PlanEpoch::Drain(const std::string& why, const ExecutorSet& executors, ActionQueue& queue) {
  state_ = State::kStopping;
  waiting_.clear();
  for (const std::string& device : plan_.devices) {
    if (!executors.IsPresent(device) || ended_at_.contains(device)) continue;
    waiting_.insert(device);
    queue.Push(SendAbort{.name = device, .epoch = number_, .why = why});
  }
}

bool PlanEpoch::OnStopped(const std::string& name) {
  waiting_.erase(name);
  return state_ == State::kStopping && waiting_.empty();
}

bool PlanEpoch::IsCurrent(const StageEnded& event) const {
  if (event.epoch != number_ || !plan_.Uses(event.name)) return false;
  return !event.status.ok() || (event.last_step >= 0 && event.last_step <= total_steps_);
}

bool PlanEpoch::IsCurrent(const ShardWritten& event) const {
  return event.epoch == number_ && event.stage >= 0 && plan_.RankOf(event.name) == event.stage && event.stage < plan_.stages() &&
         event.step >= 0 && event.step <= total_steps_;
}

bool PlanEpoch::ReplicaZeroHasEnded() const {
  const auto begin = plan_.devices.begin();
  return planned() && std::all_of(begin, begin + plan_.stages(), [this](const std::string& device) { return ended_at_.contains(device); });
}

int64_t PlanEpoch::LastStepOfReplicaZero() const { return ended_at_.at(plan_.devices[0]); }

bool PlanEpoch::EndedBeforeLastStep() const {
  return ReplicaZeroHasEnded() &&
         std::all_of(ended_at_.begin(), ended_at_.end(), [this](const auto& end) { return end.second < total_steps_; });
}

bool PlanEpoch::IsNoLongerRequired(int rank) const {
  const bool under_way = runs() || state_ == State::kEnded;
  return under_way && rank >= 0 && plan_.ReplicaOf(rank) > 0 && ReplicaZeroHasEnded();
}

std::vector<int> PlanEpoch::UnfinishedRanks() const {
  std::vector<int> ranks;
  for (int rank = plan_.stages(); rank < static_cast<int>(plan_.devices.size()); ++rank) {
    if (!ended_at_.contains(plan_.devices[static_cast<size_t>(rank)])) ranks.push_back(rank);
  }
  return ranks;
}

void PlanEpoch::EmitReplicaFailed(int rank, const std::string& what, ActionQueue& queue) const {
  const std::string& device = plan_.devices[static_cast<size_t>(rank)];
  EmitEvent failed{.reason = "ReplicaFailed",
                   .step = last_step_,
                   .message = absl::StrFormat("%s on %s: %s%s", plan_.Describe(rank), device, what, kNoLongerRequired),
                   .device = device};
  SetStageAndReplica(plan_, rank, failed);
  queue.Push(std::move(failed));
}

void PlanEpoch::EndOtherReplicas(const std::string& why, const ExecutorSet& executors, ActionQueue& queue) {
  for (const int rank : UnfinishedRanks()) {
    const std::string& device = plan_.devices[static_cast<size_t>(rank)];
    ended_at_[device] = LastStepOfReplicaZero();
    if (executors.IsPresent(device)) queue.Push(SendAbort{.name = device, .epoch = number_, .why = why});
  }
}

std::string PlanEpoch::AtStage(const std::string& name, const absl::Status& why) const {
  return absl::StrFormat("%s on %s: %s", plan_.Describe(plan_.RankOf(name)), name, std::string(why.message()));
}

}  // namespace fusionllm::broker
