#include "lib/kubeapi/fusion_job_status.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace fusionllm::kubeapi {
namespace {

struct Holding {
  absl::string_view condition;
  ConditionStatus status;
  bool obstacle = false;  // only with a reason that is more than that it is on its way
};

// The first that holds gives the reason: the ends, then what stands in the way, then how far the job has come. Ready is the last word on
// what it waits for; why it starts again says more than that it does.
constexpr Holding kByWeight[] = {
    {kJobDeleting, ConditionStatus::kTrue}, {kFailed, ConditionStatus::kTrue},     {kComplete, ConditionStatus::kTrue},
    {kAccepted, ConditionStatus::kFalse},   {kSuspended, ConditionStatus::kTrue},  {kReady, ConditionStatus::kFalse, true},
    {kRestarting, ConditionStatus::kTrue},  {kDegraded, ConditionStatus::kTrue},   {kReady, ConditionStatus::kFalse},
    {kReady, ConditionStatus::kTrue},       {kScheduled, ConditionStatus::kFalse}, {kScheduled, ConditionStatus::kTrue},
};

bool IsOnItsWay(const Condition& condition) { return condition.reason == "ExecutorsStarting" || condition.reason == "Restarting"; }

std::string Ratio(int64_t part, int64_t whole) { return absl::StrCat(part, "/", whole); }

// As kubectl prints ages: two units at most.
std::string ShortDuration(int64_t seconds) {
  if (seconds < 60) return absl::StrCat(seconds, "s");
  const int64_t minutes = seconds / 60, hours = minutes / 60, days = hours / 24;
  if (hours < 1) return absl::StrCat(minutes, "m", seconds % 60, "s");
  if (days < 1) return absl::StrCat(hours, "h", minutes % 60, "m");
  return absl::StrCat(days, "d", hours % 24, "h");
}

// "3/4" as "4/4"; what is no such text stays.
std::string Whole(const std::string& ratio) {
  const size_t slash = ratio.find('/');
  return slash == std::string::npos ? ratio : absl::StrCat(ratio.substr(slash + 1), "/", ratio.substr(slash + 1));
}

void CountParts(int64_t executors_wanted, FusionJobStatus& status) {
  status.executors = Ratio(status.ready_replicas, executors_wanted);
  // Clusters of earlier attempts are in the list, too: they may have something left.
  int64_t epoch = 0, used = 0, whole = 0;
  for (const ClusterStatus& cluster : status.cluster_statuses) epoch = std::max(epoch, cluster.epoch);
  for (const ClusterStatus& cluster : status.cluster_statuses) {
    if (cluster.epoch != epoch) continue;
    ++used;
    if (cluster.active > 0 && cluster.ready == cluster.active) ++whole;
  }
  status.clusters = Ratio(whole, used);
}

void SummarizeParts(int64_t executors_wanted, FusionJobStatus& status) {
  // A job that is over has nothing that could be ready: it tells what ran, as far as that was reported before.
  const bool complete = IsTrue(status.conditions, kComplete);
  if (!(complete || IsTrue(status.conditions, kFailed)) || status.executors.empty()) CountParts(executors_wanted, status);
  if (!complete) return;
  status.executors = Whole(status.executors);
  status.clusters = Whole(status.clusters);
}

// What the release before called conditions and those of their reasons that decisions are made by.
struct FormerName {
  absl::string_view before, now;
};
constexpr FormerName kFormerConditions[] = {{"Dispatched", kScheduled}, {"Advised", kPlacementHint}, {"Left", kExcluded}};
constexpr FormerName kFormerReasons[] = {{"FewerDispatched", "PartiallyScheduled"}, {"WaitingForRoom", "InsufficientCapacity"}};

template <size_t kCount>
void Rename(const FormerName (&names)[kCount], std::string& name) {
  for (const FormerName& former : names) {
    if (name == former.before) name = std::string(former.now);
  }
}

void RenameFormer(std::vector<Condition>& conditions) {
  for (Condition& condition : conditions) {
    Rename(kFormerConditions, condition.type);
    Rename(kFormerReasons, condition.reason);
  }
}

}  // namespace

void RenameFormerConditions(FusionJobStatus& status) {
  RenameFormer(status.conditions);
  for (ClusterStatus& cluster : status.cluster_statuses) RenameFormer(cluster.conditions);
}

void Summarize(int64_t executors_wanted, FusionJobStatus& status) {
  status.reason.clear();
  for (const Holding& one : kByWeight) {
    const Condition* condition = FindCondition(status.conditions, one.condition);
    if (condition == nullptr || condition->status != one.status || (one.obstacle && IsOnItsWay(*condition))) continue;
    status.reason = condition->reason;
    break;
  }
  SummarizeParts(executors_wanted, status);
  if (!status.trainer_status) return;
  TrainerStatus& trainer = *status.trainer_status;
  trainer.progress = absl::StrCat(trainer.progress_percentage, "%");
  trainer.eta =
      trainer.estimated_remaining_seconds && !IsFinished(status.conditions) ? ShortDuration(*trainer.estimated_remaining_seconds) : "";
}

}  // namespace fusionllm::kubeapi
