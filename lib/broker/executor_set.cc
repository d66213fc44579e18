#include "lib/broker/executor_set.h"

#include <algorithm>
#include <utility>

namespace fusionllm::broker {

ExecutorSet::ExecutorSet(const RunOptions& options)
    : expected_(options.expected),
      data_devices_(options.data_devices),
      excluded_(options.excluded),
      min_executors_(options.min_executors),
      min_memory_bytes_(options.min_executor_memory_bytes) {}

bool ExecutorSet::Admit(const Executor& executor) {
  const auto absence = absences_.find(executor.name);
  if (absence == absences_.end() || absence->second.state != State::kUnfit) return true;
  if (absence->second.incarnation == executor.incarnation) return false;
  absences_.erase(absence);
  return true;
}

void ExecutorSet::Join(const Executor& executor) {
  executors_[executor.name] = executor;
  absences_.erase(executor.name);
  if (executor.spare || !MayTrain(executor)) {
    no_trainers_.insert(executor.name);
  } else {
    no_trainers_.erase(executor.name);
  }
  had_data_ = had_data_ || HasData(executor.name);
}

bool ExecutorSet::Leave(const std::string& name, uint64_t incarnation) {
  const auto found = executors_.find(name);
  if (found == executors_.end() || found->second.incarnation != incarnation) return false;
  executors_.erase(found);
  considered_.erase(name);
  return true;
}

void ExecutorSet::MarkUnfit(const std::string& name) { absences_[name] = {State::kUnfit, executors_.at(name).incarnation}; }

void ExecutorSet::GiveUpMissing() {
  for (const std::string& name : Missing()) absences_[name] = {.state = State::kGivenUp};
}

void ExecutorSet::AwaitGivenUp() {
  std::erase_if(absences_, [](const auto& entry) { return entry.second.state == State::kGivenUp; });
}

ExecutorSet::State ExecutorSet::StateOf(const std::string& name) const {
  if (IsPresent(name)) return State::kPresent;
  const auto absence = absences_.find(name);
  return absence == absences_.end() ? State::kAbsent : absence->second.state;
}

bool ExecutorSet::AllPresent(const std::vector<std::string>& names) const {
  return std::all_of(names.begin(), names.end(), [this](const std::string& name) { return IsPresent(name); });
}

bool ExecutorSet::IsUnfit(const std::string& name) const {
  const auto absence = absences_.find(name);
  return absence != absences_.end() && absence->second.state == State::kUnfit;
}

bool ExecutorSet::IsSameProcess(const Executor& executor) const {
  const auto found = executors_.find(executor.name);
  return found != executors_.end() && found->second.incarnation == executor.incarnation;
}

const std::string& ExecutorSet::SiteOf(const std::string& name) const {
  static const std::string kNowhere;
  const auto found = executors_.find(name);
  return found == executors_.end() ? kNowhere : found->second.site;
}

std::vector<std::string> ExecutorSet::Missing() const {
  std::vector<std::string> missing;
  for (const std::string& name : expected_) {
    if (StateOf(name) == State::kAbsent) missing.push_back(name);
  }
  return missing;
}

int64_t ExecutorSet::CountNonSpares() const {
  return std::count_if(executors_.begin(), executors_.end(), [](const auto& entry) { return !entry.second.spare; });
}

bool ExecutorSet::IsDispensable(const std::string& name, bool planned, bool gathers) const {
  const Executor& executor = executors_.at(name);
  const bool last_with_data = HasData(name) && std::all_of(data_devices_.begin(), data_devices_.end(),
                                                           [&](const std::string& other) { return other == name || IsUnfit(other); });
  if (!planned && (last_with_data || (!executor.spare && expected_.contains(name)))) return false;
  // Of an open run any machine may come, with a broken device or a lie: the others wait for another one.
  if (!planned && min_executors_ > 0) return true;
  if (gathers) {
    const bool others_come =
        std::any_of(expected_.begin(), expected_.end(), [this](const std::string& other) { return !IsPresent(other) && !IsUnfit(other); });
    if (others_come) return true;
  }
  return std::any_of(executors_.begin(), executors_.end(),
                     [&](const auto& entry) { return entry.first != name && (planned || !entry.second.spare); });
}

bool ExecutorSet::JoinedByItself(const std::string& name) const {
  return min_executors_ > 0 && IsPresent(name) && !HasData(name) && !expected_.contains(name);
}

bool ExecutorSet::LacksData() const {
  return !data_devices_.empty() &&
         std::none_of(data_devices_.begin(), data_devices_.end(), [this](const std::string& name) { return IsPresent(name); });
}

bool ExecutorSet::MayTrain(const Executor& executor) const {
  return !excluded_.contains(executor.name) && executor.memory_bytes >= min_memory_bytes_;
}

int ExecutorSet::Trainers() const {
  return static_cast<int>(std::count_if(executors_.begin(), executors_.end(),
                                        [this](const auto& entry) { return !entry.second.spare && MayTrain(entry.second); }));
}

void ExecutorSet::RecordTrainers(int trainers) { max_trainers_ = std::max(max_trainers_, trainers); }

// Of an expected executor that has never joined it is not known that it is a spare.
int ExecutorSet::DesiredExecutors() const {
  const auto by_name = std::count_if(expected_.begin(), expected_.end(),
                                     [this](const std::string& name) { return !excluded_.contains(name) && !no_trainers_.contains(name); });
  return std::max({static_cast<int>(by_name), min_executors_, max_trainers_});
}

bool ExecutorSet::IsBelowDesired(const RunPlan& plan) const {
  return plan.executors > 0 && plan.executors < std::min(plan.desired_executors, DesiredExecutors());
}

bool ExecutorSet::NeedsSpares(const RunPlan& plan) const { return IsBelowDesired(plan) && Trainers() < DesiredExecutors(); }

std::vector<std::string> ExecutorSet::LateJoiners(const RunPlan& plan) const {
  std::vector<std::string> names;
  if (!IsBelowDesired(plan)) return names;
  const bool spares = NeedsSpares(plan);
  for (const auto& [name, executor] : executors_) {
    if (!plan.Uses(name) && MayTrain(executor) && (spares || !executor.spare) && !considered_.contains(name)) names.push_back(name);
  }
  return names;
}

void ExecutorSet::MarkConsidered(const std::vector<std::string>& names) { considered_.insert(names.begin(), names.end()); }

}  // namespace fusionllm::broker
