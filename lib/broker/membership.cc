#include "lib/broker/membership.h"

#include <algorithm>
#include <utility>

namespace fusionllm::broker {

Membership::Membership(const RunOptions& options)
    : expected_(options.expected),
      data_devices_(options.data_devices),
      excluded_(options.excluded),
      min_executors_(options.min_executors),
      min_memory_bytes_(options.min_executor_memory_bytes) {}

bool Membership::Admit(const Member& member) {
  const auto absence = absences_.find(member.name);
  if (absence == absences_.end() || absence->second.standing != Standing::kUnfit) return true;
  if (absence->second.incarnation == member.incarnation) return false;
  absences_.erase(absence);
  return true;
}

void Membership::Join(const Member& member) {
  members_[member.name] = member;
  absences_.erase(member.name);
  if (member.spare || !MayTrain(member)) {
    no_trainers_.insert(member.name);
  } else {
    no_trainers_.erase(member.name);
  }
  data_was_here_ = data_was_here_ || HasData(member.name);
}

bool Membership::Leave(const std::string& name, uint64_t incarnation) {
  const auto found = members_.find(name);
  if (found == members_.end() || found->second.incarnation != incarnation) return false;
  members_.erase(found);
  considered_.erase(name);
  return true;
}

void Membership::MarkUnfit(const std::string& name) { absences_[name] = {Standing::kUnfit, members_.at(name).incarnation}; }

void Membership::GiveUpMissing() {
  for (const std::string& name : Missing()) absences_[name] = {.standing = Standing::kGivenUp};
}

void Membership::AwaitGivenUp() {
  std::erase_if(absences_, [](const auto& entry) { return entry.second.standing == Standing::kGivenUp; });
}

Membership::Standing Membership::StandingOf(const std::string& name) const {
  if (IsPresent(name)) return Standing::kPresent;
  const auto absence = absences_.find(name);
  return absence == absences_.end() ? Standing::kAbsent : absence->second.standing;
}

bool Membership::AllPresent(const std::vector<std::string>& names) const {
  return std::all_of(names.begin(), names.end(), [this](const std::string& name) { return IsPresent(name); });
}

bool Membership::IsUnfit(const std::string& name) const {
  const auto absence = absences_.find(name);
  return absence != absences_.end() && absence->second.standing == Standing::kUnfit;
}

bool Membership::IsSameProcess(const Member& member) const {
  const auto found = members_.find(member.name);
  return found != members_.end() && found->second.incarnation == member.incarnation;
}

const std::string& Membership::SiteOf(const std::string& name) const {
  static const std::string kNowhere;
  const auto found = members_.find(name);
  return found == members_.end() ? kNowhere : found->second.site;
}

std::vector<std::string> Membership::Missing() const {
  std::vector<std::string> missing;
  for (const std::string& name : expected_) {
    if (StandingOf(name) == Standing::kAbsent) missing.push_back(name);
  }
  return missing;
}

int64_t Membership::Executors() const {
  return std::count_if(members_.begin(), members_.end(), [](const auto& entry) { return !entry.second.spare; });
}

bool Membership::IsDispensable(const std::string& name, bool planned, bool gathers) const {
  const Member& member = members_.at(name);
  const bool last_with_data = HasData(name) && std::all_of(data_devices_.begin(), data_devices_.end(),
                                                           [&](const std::string& other) { return other == name || IsUnfit(other); });
  if (!planned && (last_with_data || (!member.spare && expected_.contains(name)))) return false;
  // Of an open run any machine may come, with a broken device or a lie: the others wait for another one.
  if (!planned && min_executors_ > 0) return true;
  if (gathers) {
    const bool others_come =
        std::any_of(expected_.begin(), expected_.end(), [this](const std::string& other) { return !IsPresent(other) && !IsUnfit(other); });
    if (others_come) return true;
  }
  return std::any_of(members_.begin(), members_.end(),
                     [&](const auto& entry) { return entry.first != name && (planned || !entry.second.spare); });
}

bool Membership::JoinedByItself(const std::string& name) const {
  return min_executors_ > 0 && IsPresent(name) && !HasData(name) && !expected_.contains(name);
}

bool Membership::LacksData() const {
  return !data_devices_.empty() &&
         std::none_of(data_devices_.begin(), data_devices_.end(), [this](const std::string& name) { return IsPresent(name); });
}

bool Membership::MayTrain(const Member& member) const {
  return !excluded_.contains(member.name) && member.memory_bytes >= min_memory_bytes_;
}

int Membership::Trainers() const {
  return static_cast<int>(
      std::count_if(members_.begin(), members_.end(), [this](const auto& entry) { return !entry.second.spare && MayTrain(entry.second); }));
}

void Membership::RecordTrainers(int trainers) { max_trainers_ = std::max(max_trainers_, trainers); }

// Of an expected executor that has never joined it is not known that it is a spare.
int Membership::Wanted() const {
  const auto by_name = std::count_if(expected_.begin(), expected_.end(),
                                     [this](const std::string& name) { return !excluded_.contains(name) && !no_trainers_.contains(name); });
  return std::max({static_cast<int>(by_name), min_executors_, max_trainers_});
}

bool Membership::IsBelowWanted(const RunPlan& plan) const { return plan.executors > 0 && plan.executors < std::min(plan.wanted, Wanted()); }

bool Membership::NeedsSpares(const RunPlan& plan) const { return IsBelowWanted(plan) && Trainers() < Wanted(); }

std::vector<std::string> Membership::LateJoiners(const RunPlan& plan) const {
  std::vector<std::string> names;
  if (!IsBelowWanted(plan)) return names;
  const bool spares = NeedsSpares(plan);
  for (const auto& [name, member] : members_) {
    if (!plan.Uses(name) && MayTrain(member) && (spares || !member.spare) && !considered_.contains(name)) names.push_back(name);
  }
  return names;
}

void Membership::MarkConsidered(const std::vector<std::string>& names) { considered_.insert(names.begin(), names.end()); }

}  // namespace fusionllm::broker
