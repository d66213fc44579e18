#include "lib/kubeapi/fusion_job_status.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace fusionllm::kubeapi {
namespace {

struct State {
  absl::string_view condition;
  ConditionStatus status;
  absl::string_view name;
};

// The first that holds is the state: the ends, then what stands in the way, then how far the job has come.
constexpr State kStates[] = {
    {kFailed, ConditionStatus::kTrue, "Failed"},         {kComplete, ConditionStatus::kTrue, "Complete"},
    {kAccepted, ConditionStatus::kFalse, "Invalid"},     {kSuspended, ConditionStatus::kTrue, "Suspended"},
    {kRestarting, ConditionStatus::kTrue, "Restarting"}, {kDegraded, ConditionStatus::kTrue, "Degraded"},
    {kReady, ConditionStatus::kTrue, "Running"},         {kDispatched, ConditionStatus::kTrue, "Starting"},
};

std::string Ratio(int64_t part, int64_t whole) { return absl::StrCat(part, "/", whole); }

// As kubectl prints ages: two units at most.
std::string ShortDuration(int64_t seconds) {
  if (seconds < 60) return absl::StrCat(seconds, "s");
  const int64_t minutes = seconds / 60, hours = minutes / 60, days = hours / 24;
  if (hours < 1) return absl::StrCat(minutes, "m", seconds % 60, "s");
  if (days < 1) return absl::StrCat(hours, "h", minutes % 60, "m");
  return absl::StrCat(days, "d", hours % 24, "h");
}

}  // namespace

void Summarize(int64_t executors_wanted, FusionJobStatus& status) {
  status.state = "Pending";
  status.reason.clear();
  for (const State& state : kStates) {
    const Condition* condition = FindCondition(status.conditions, state.condition);
    if (condition == nullptr || condition->status != state.status) continue;
    status.state = std::string(state.name);
    status.reason = condition->reason;
    break;
  }
  status.executors = Ratio(status.ready_replicas, executors_wanted);
  const auto whole = [](const ClusterStatus& cluster) { return cluster.active > 0 && cluster.ready == cluster.active; };
  status.clusters = Ratio(std::count_if(status.cluster_statuses.begin(), status.cluster_statuses.end(), whole),
                          static_cast<int64_t>(status.cluster_statuses.size()));
  if (!status.trainer_status) return;
  TrainerStatus& trainer = *status.trainer_status;
  trainer.progress = absl::StrCat(trainer.progress_percentage, "%");
  trainer.eta =
      trainer.estimated_remaining_seconds && !IsFinished(status.conditions) ? ShortDuration(*trainer.estimated_remaining_seconds) : "";
}

}  // namespace fusionllm::kubeapi
