#include "operator/controller/transition_events.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "operator/controller/job_status.h"
#include "operator/lifecycle/pod_diagnosis.h"

namespace fusionllm::op::controller {
namespace {

using kubeapi::Condition;
using kubeapi::ConditionStatus;
using kubeapi::FusionJobStatus;

// A condition as it was and as it is, if the two say different things. Another wording alone is no news.
struct Turn {
  const Condition* was = nullptr;
  const Condition* is = nullptr;

  explicit operator bool() const { return is != nullptr && (was == nullptr || was->status != is->status || was->reason != is->reason); }
  bool true_now() const { return is->status == ConditionStatus::kTrue; }
  bool true_before() const { return was != nullptr && was->status == ConditionStatus::kTrue; }
};

Turn TurnOf(absl::string_view type, const FusionJobStatus& before, const FusionJobStatus& after) {
  return {kubeapi::FindCondition(before.conditions, type), kubeapi::FindCondition(after.conditions, type)};
}

void TellAcceptance(const Turn& turn, std::vector<lifecycle::EventRecord>& events) {
  if (turn && !turn.true_now()) events.push_back({true, turn.is->reason, turn.is->message});
}

void TellDispatch(const Turn& turn, std::vector<lifecycle::EventRecord>& events) {
  if (!turn) return;
  if (turn.true_now()) {
    events.push_back({false, turn.is->reason, turn.is->message});
  } else {
    events.push_back({turn.is->reason != lifecycle::kInsufficientCapacity, turn.is->reason, turn.is->message});
  }
}

void TellAdmission(const Turn& turn, std::vector<lifecycle::EventRecord>& events) {
  if (!turn) return;
  const bool missing = turn.is->reason == lifecycle::kKueueNotInstalled || turn.is->reason == lifecycle::kKueueNotAllowed;
  events.push_back({missing, turn.is->reason, turn.is->message});
}

// By its user: of queues TellAdmission() tells.
bool IsQueued(const Condition& suspended) { return suspended.status == ConditionStatus::kTrue && suspended.reason != "Suspended"; }

void TellSuspension(const Turn& turn, std::vector<lifecycle::EventRecord>& events) {
  if (!turn || IsQueued(*turn.is)) return;
  const bool was_queued = turn.was != nullptr && IsQueued(*turn.was);
  if (turn.true_now()) {
    events.push_back({false, "Suspended", turn.is->message});
  } else if (turn.is->reason == "Suspending") {
    events.push_back({false, "Suspending", turn.is->message});
  } else if (turn.true_before() && !was_queued) {
    events.push_back({false, "Resumed", "The job goes on."});
  }
}

// Of what the broker waits for its own events tell.
bool IsOfTheBroker(const Condition& degraded) { return degraded.status == ConditionStatus::kTrue && lifecycle::IsWait(degraded.reason); }

void TellDegradation(const Turn& turn, std::vector<lifecycle::EventRecord>& events) {
  if (!turn) return;
  const bool reported_before = turn.true_before() && !IsOfTheBroker(*turn.was);
  // Of a cluster that is lost more is said below. That what was lost is being made again is no news.
  const bool is_replaced = reported_before && turn.is->reason == lifecycle::kExecutorsStarting;
  if (turn.true_now() && !IsOfTheBroker(*turn.is)) {
    if (turn.is->reason != "ClusterLost" && !is_replaced)
      events.push_back({true, absl::StrCat("Degraded", turn.is->reason), turn.is->message});
  } else if (reported_before && (turn.true_now() || turn.is->reason == lifecycle::kNotDegraded)) {
    events.push_back({false, "Recovered", lifecycle::kNoneIsMissing});
  }
}

// What keeps a job from beginning, or from going on, where no other condition tells it.
void TellReadiness(const FusionJobStatus& before, const FusionJobStatus& after, std::vector<lifecycle::EventRecord>& events) {
  constexpr const char* kReportedReasons[] = {lifecycle::kImageNotAvailable, lifecycle::kContainerConfigError, lifecycle::kVolumeNotMounted,
                                              lifecycle::kClaimNotBound,     lifecycle::kUnschedulable,        lifecycle::kOutOfMemory,
                                              lifecycle::kNodeNotReady,      lifecycle::kExecutorsNotReady,    lifecycle::kBrokerNotReady};
  const Turn turn = TurnOf(kubeapi::kReady, before, after);
  if (!turn || turn.true_now() || kubeapi::IsTrue(after.conditions, kubeapi::kDegraded)) return;
  if (std::find(std::begin(kReportedReasons), std::end(kReportedReasons), turn.is->reason) == std::end(kReportedReasons)) return;
  events.push_back({true, turn.is->reason, turn.is->message});
}

void TellWarning(const Turn& turn, std::vector<lifecycle::EventRecord>& events) {
  if (turn && turn.true_now()) events.push_back({true, turn.is->type, turn.is->message});
}

void TellDeletion(const Turn& turn, std::vector<lifecycle::EventRecord>& events) {
  if (turn && turn.true_now()) events.push_back({turn.is->reason == "ClusterUnreachable", turn.is->reason, turn.is->message});
}

bool CountsAsLost(const kubeapi::ClusterStatus& cluster) {
  return cluster.state == "Lost" || (cluster.state == kRemovedState && cluster.message == kRemovedAndLost);
}

void TellClusters(const FusionJobStatus& before, const FusionJobStatus& after, std::vector<lifecycle::EventRecord>& events) {
  for (const kubeapi::ClusterStatus& is : after.cluster_statuses) {
    const auto was = std::find_if(before.cluster_statuses.begin(), before.cluster_statuses.end(),
                                  [&](const kubeapi::ClusterStatus& cluster) { return cluster.name == is.name; });
    // Of clusters of earlier attempts no user wants to know.
    if (was == before.cluster_statuses.end() || is.epoch != after.attempt) continue;
    if (was->state == is.state && CountsAsLost(*was) == CountsAsLost(is)) continue;
    if (is.state == "Connected") {
      events.push_back({false, "ClusterBack", absl::StrCat("Cluster ", is.name, " can be reached again.")});
    } else if (CountsAsLost(is) && !CountsAsLost(*was)) {
      events.push_back({true, "ClusterLost", absl::StrCat("Cluster ", is.name, " counts as lost: ", is.message)});
    } else if (is.state == kRemovedState) {
      events.push_back({true, "ClusterRemoved", absl::StrCat("Cluster ", is.name, " was removed: ", is.message)});
    } else if (is.state == "Unreachable") {
      events.push_back({true, "ClusterUnreachable",
                        absl::StrCat("Cluster ", is.name, " cannot be reached; what runs there goes on for all that is known.")});
    }
  }
}

void TellCheckpoint(const FusionJobStatus& before, const FusionJobStatus& after, std::vector<lifecycle::EventRecord>& events) {
  if (!after.checkpoint.has_value() || !after.checkpoint->time.has_value()) return;
  const auto part = [](absl::Time time) { return absl::ToUnixSeconds(time) / absl::ToInt64Seconds(kCheckpointEventEvery); };
  const bool first = !before.checkpoint.has_value() || !before.checkpoint->time.has_value();
  if (!first && part(*before.checkpoint->time) == part(*after.checkpoint->time)) return;
  events.push_back({false, "CheckpointSaved", absl::StrCat("Step ", after.checkpoint->step, " is in the newest checkpoint.")});
}

}  // namespace

std::vector<lifecycle::EventRecord> EventsForTransition(const FusionJobStatus& before, const FusionJobStatus& after) {
  std::vector<lifecycle::EventRecord> events;
  TellAcceptance(TurnOf(kubeapi::kAccepted, before, after), events);
  TellDispatch(TurnOf(kubeapi::kScheduled, before, after), events);
  TellAdmission(TurnOf(kubeapi::kAdmitted, before, after), events);
  TellSuspension(TurnOf(kubeapi::kSuspended, before, after), events);
  TellDegradation(TurnOf(kubeapi::kDegraded, before, after), events);
  TellReadiness(before, after, events);
  TellWarning(TurnOf(kubeapi::kCheckpointStale, before, after), events);
  TellDeletion(TurnOf(kubeapi::kJobDeleting, before, after), events);
  TellClusters(before, after, events);
  TellCheckpoint(before, after, events);
  return events;
}

}  // namespace fusionllm::op::controller
