#include "operator/lifecycle/decider.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/exit_code.h"
#include "lib/base/truncate_utf8.h"
#include "operator/manifests/data_volumes.h"

namespace fusionllm::op::lifecycle {
namespace {

constexpr size_t kMaxNamed = 3;
// Changes of room bring a job back at once; this is for what is not reported.
constexpr absl::Duration kCapacityRecheckPeriod = absl::Minutes(1);
// Answers bring a job back at once; this is for one that does not come.
constexpr absl::Duration kDryRunRecheckPeriod = absl::Seconds(1);
// For Pods of a deleted job to end by themselves.
constexpr int kDeletedGraceSeconds = 5;
// What to do must not be cut off for what is wrong.
constexpr size_t kRefusalBytes = 930;
constexpr char kKeptForAnotherSpec[] = " The job is kept: set spec.suspend, mend its spec and resume it.";

}  // namespace

const char* Name(RestartCause cause) {
  switch (cause) {
    case RestartCause::kBrokerFailed:
      return "BrokerFailed";
    case RestartCause::kBrokerLost:
      return "BrokerLost";
    case RestartCause::kExecutorFailed:
      return "ExecutorFailed";
    case RestartCause::kClusterLost:
      return "ClusterLost";
    case RestartCause::kResized:
      return "Resized";
  }
  return "?";
}

Decision Decide(const Observation& observed) { return Decider(observed).Run(); }

Decision Decider::Run() {
  if (seen_.deleted_at.has_value()) {
    Delete();
  } else if (seen_.persisted.complete || seen_.persisted.failed) {
    HandleFinishedJob();
  } else if (spec_.suspend) {
    Suspend();
  } else if (seen_.is_queued()) {
    Queue();
  } else {
    // A status that was lost, with its job restored from a copy: the pods know better which attempt this is.
    for (const PodView* pod : Pods()) decision_.persisted.attempt = std::max(decision_.persisted.attempt, pod->attempt);
    RunAttempt();
  }
  return std::move(decision_);
}

void Decider::Delete() {
  decision_.state = JobState::kDeleting;
  const bool preserve = spec_.preserve_resources_on_deletion;
  std::vector<std::string> left, away;
  std::string refused;
  const auto all_called = [this](const std::vector<std::string>& clusters) {
    return absl::StrJoin(clusters, ", ", [this](std::string* out, const std::string& cluster) { out->append(Called(cluster)); });
  };
  for (const ClusterView& cluster : seen_.clusters) {
    const bool there =
        preserve ? cluster.owner_config_map && !cluster.owner_config_map_preserved : cluster.owner_config_map || !cluster.pods.empty();
    // What a cluster that is away has is not known, if no one has looked since the operator began.
    if (cluster.reachable ? there : there || cluster.used) (cluster.reachable ? left : away).push_back(cluster.name);
    if (cluster.refusal.has_value()) absl::StrAppend(&refused, " ", cluster.refusal->message);
    if (preserve) continue;
    for (const PodView& pod : cluster.pods) ForceRemove(pod);
  }
  (preserve ? decision_.preserve_owner_config_maps : decision_.delete_owner_config_maps) = !left.empty() || !away.empty();
  const absl::Duration force_delete_after = absl::Seconds(std::max<int64_t>(spec_.force_delete_after_seconds, 60));
  // A cluster that is away must not hold a job for ever: what is left there is seen to when it is back.
  const absl::Time give_up = *seen_.deleted_at + force_delete_after;
  const absl::Time stuck = preserve ? absl::InfiniteFuture() : CleanupDeadline() + force_delete_after + kStuckTimeout;
  const bool done = seen_.force_delete || ((left.empty() || seen_.now >= stuck) && (away.empty() || seen_.now >= give_up));
  if (!left.empty()) {
    Condition(JobCondition::kDeleting, true, preserve ? "Preserving" : "CleaningUp",
              preserve ? absl::StrCat("Marking what stays in ", all_called(left), ".", refused)
                       : absl::StrCat("Waiting for objects in ", all_called(left), ": ", LeftoverText(), ".", refused));
    // A member that is away from now on reports nothing, and counts as lost much later.
    if (!done && (left.size() > 1 || left.front() != seen_.clusters.front().name)) RequeueAt(seen_.now + kClusterRecheckPeriod);
    if (!done && stuck < absl::InfiniteFuture()) RequeueAt(stuck);
  }
  if (!away.empty()) {
    Condition(JobCondition::kDeleting, true, "ClusterUnreachable",
              absl::StrCat("Objects may be left in ", all_called(away), ", which cannot be reached."));
    if (!done) RequeueAt(std::min(give_up, seen_.now + kClusterRecheckPeriod));
  }
  if (done && !left.empty()) {
    AddEvent(true, "CleanupIncomplete",
             absl::StrCat("Deleted although there is something left in ", all_called(left), ": ", LeftoverText(), "."));
  }
  if (done) {
    decision_.tombstones = std::move(left);
    decision_.tombstones.insert(decision_.tombstones.end(), away.begin(), away.end());
  }
  decision_.remove_finalizer = done;
}

// A Pod's own time to end is for what the job is to keep, and nothing of a deleted one is kept: not of one that was being suspended,
// either.
void Decider::ForceRemove(const PodView& pod) {
  const bool ends_later = !Ended(pod) && pod.deleted_at.value_or(absl::InfiniteFuture()) > seen_.now + absl::Seconds(kDeletedGraceSeconds);
  if (ends_later && seen_.now < ForceAt(pod)) {
    decision_.remove.push_back({pod.cluster, pod.name, pod.uid, kDeletedGraceSeconds});
  } else if (pod.deleted_at.has_value()) {
    Remove(pod);  // by force, when its time is over
  }
}

absl::Time Decider::CleanupDeadline() const {
  absl::Time at = *seen_.deleted_at;
  for (const ClusterView& cluster : seen_.clusters) {
    if (!cluster.reachable) continue;
    if (cluster.owner_config_map && !cluster.owner_config_map_terminating) return absl::InfiniteFuture();
    for (const PodView& pod : cluster.pods) at = std::max(at, pod.deleted_at.value_or(absl::InfiniteFuture()));
  }
  return at;
}

std::string Decider::LeftoverText() const {
  std::vector<std::string> names;
  for (const ClusterView& cluster : seen_.clusters) {
    if (!cluster.reachable) continue;
    const auto pods = static_cast<ptrdiff_t>(names.size());
    for (const PodView& pod : cluster.pods) names.push_back(absl::StrCat("Pod ", pod.name));
    // Caches have no order: with each look others would be the first, which is no news.
    std::sort(names.begin() + pods, names.end());
    if (cluster.owner_config_map)
      names.push_back(absl::StrCat("ConfigMap ", manifests::OwnerConfigMapName(seen_.identity), " of ", Called(cluster.name)));
  }
  const size_t more = names.size() <= kMaxNamed ? 0 : names.size() - kMaxNamed;
  names.resize(names.size() - more);
  return absl::StrCat(absl::StrJoin(names, ", "), more > 0 ? absl::StrCat(" and ", more, " more") : "");
}

void Decider::HandleFinishedJob() {
  decision_.state = seen_.persisted.complete ? JobState::kComplete : JobState::kFailed;
  if (spec_.clean_pod_policy == job::CleanPodPolicy::kAll) {
    decision_.delete_owner_config_maps =
        std::any_of(seen_.clusters.begin(), seen_.clusters.end(), [](const auto& c) { return c.owner_config_map; });
    for (const PodView* pod : Pods()) {
      if (pod->deleted_at.has_value()) Remove(*pod);  // by force, when its time is over
    }
  } else if (spec_.clean_pod_policy == job::CleanPodPolicy::kRunning) {
    decision_.remove_services = true;
    for (const PodView* pod : Pods()) {
      if (!Ended(*pod) || pod->deleted_at.has_value()) Remove(*pod);
    }
  }
  if (!spec_.ttl_seconds_after_finished.has_value() || !seen_.persisted.completed_at.has_value()) return;
  const absl::Time at = *seen_.persisted.completed_at + absl::Seconds(*spec_.ttl_seconds_after_finished);
  if (seen_.now >= at) {
    decision_.delete_job = true;
  } else {
    RequeueAt(at);
  }
}

void Decider::Suspend() {
  const bool gone = ShutDownPods();
  decision_.state = gone ? JobState::kSuspended : JobState::kSuspending;
  if (gone) {
    LeaveSuspended();
    Condition(JobCondition::kSuspended, true, "Suspended", "The job is suspended: it has no pods.");
    EndRestarting("Suspended", "The job is suspended.");
  } else {
    Condition(JobCondition::kSuspended, false, "Suspending", "Saving a checkpoint and ending the pods.");
  }
  Condition(JobCondition::kReady, false, gone ? "Suspended" : "Suspending", gone ? "The job is suspended." : "The job is being suspended.");
  Condition(JobCondition::kDegraded, false, "Suspended", "The job is suspended.");
}

void Decider::Queue() {
  const QueueStatus& queue = *seen_.queue;
  const bool gone = ShutDownPods();
  decision_.state = gone ? JobState::kQueued : JobState::kSuspending;
  const char* const reason = queue.reason.c_str();
  Condition(JobCondition::kAdmitted, false, reason, queue.message);
  if (gone) {
    LeaveSuspended();
    Condition(JobCondition::kSuspended, true, reason, "The job waits in its queue: it has no pods.");
    EndRestarting(reason, "The job waits in its queue.");
  } else {
    Condition(JobCondition::kSuspended, false, "Suspending", absl::StrCat("Saving a checkpoint and ending the pods. ", queue.message));
  }
  Condition(JobCondition::kReady, false, gone ? reason : "Suspending", queue.message);
  Condition(JobCondition::kDegraded, false, reason, "The job waits in its queue.");
  if (queue.requeue_after < absl::InfiniteDuration()) RequeueAt(seen_.now + queue.requeue_after);
}

void Decider::LeaveSuspended() {
  // Time that a job stands still does not count towards its deadline.
  if (decision_.persisted.started_at.has_value()) ++decision_.persisted.attempt;  // which is placed again
  decision_.persisted.started_at.reset();
  decision_.persisted.was_ready = false;
  decision_.persisted.avoided.clear();
}

void Decider::RefuseSpec(FailedReason why, const std::string& message) {
  if (!decision_.persisted.made_steps) return Fail(why, message);
  LeaveSuspended();
  decision_.prepare = decision_.create_broker = false;
  decision_.create.clear();
  const char* const stop = absl::EndsWith(message, ".") ? "" : ".";
  AwaitAnotherSpec(Name(why), absl::StrCat(base::TruncateUtf8(message, kRefusalBytes), stop, kKeptForAnotherSpec));
}

void Decider::AwaitAnotherSpec(const std::string& reason, const std::string& message) {
  decision_.state = JobState::kPending;
  // Those that have ended hold nothing, and have logs.
  for (const PodView* pod : Pods()) {
    if (!Ended(*pod) || pod->deleted_at.has_value()) Remove(*pod);
  }
  Condition(JobCondition::kAccepted, false, reason.c_str(), message);
  Condition(JobCondition::kReady, false, reason.c_str(), message);
  Condition(JobCondition::kDegraded, false, reason.c_str(), "The job waits for another spec.");
  EndRestarting(reason.c_str(), "The job waits for another spec.");
}

void Decider::RunAttempt() {
  if (seen_.queue.has_value()) {
    Condition(JobCondition::kAdmitted, seen_.queue->admitted, seen_.queue->reason.c_str(), seen_.queue->message);
    if (seen_.queue->requeue_after < absl::InfiniteDuration()) RequeueAt(seen_.now + seen_.queue->requeue_after);
  }
  Condition(JobCondition::kSuspended, false, seen_.persisted.was_suspended ? "Resumed" : "NotSuspended", "The job is not suspended.");
  if (seen_.persisted.restarting_since.has_value() && seen_.made_progress) {
    decision_.progress_resumed = true;
    Condition(JobCondition::kRestarting, false, "Progressing", "The job makes steps again.");
  }
  if (seen_.refused()) {
    AwaitAnotherSpec(seen_.persisted.refused_spec->reason, seen_.persisted.refused_spec->message);
    PendingDeadline(seen_.persisted.refused_spec->message);
    return;
  }
  if (PastDeadline() || MissingData()) return;
  // Resumed before all had ended: the broker that ends was asked to, and neither has made all its steps nor failed.
  if (seen_.persisted.suspending && seen_.persisted.started_at.has_value()) LeaveSuspended();
  if (WaitForPlacement()) return;
  if (const PodView* broker = Broker(decision_.persisted.attempt); broker != nullptr && Ended(*broker)) {
    if (broker->phase == PodPhase::kSucceeded) {
      Finish();
      return;
    }
    if (!Restart(*broker)) return;
  } else if (broker != nullptr && broker->deleted_at.has_value() && Stranded(*broker)) {
    if (!Restart(AsLostWithNode(*broker))) return;
  } else if (broker == nullptr && RunCompleted()) {
    Finish();
    return;
  } else if (broker == nullptr && decision_.persisted.was_ready && BrokerDrained()) {
    // As if somebody had looked: rules may be about it.
    const PodView gone{.role = manifests::kBrokerRole,
                       .phase = PodPhase::kFailed,
                       .exit_code = seen_.final_report->exit_code,
                       .disruption = seen_.left_disruption};
    if (!Restart(gone)) return;
  } else if (broker == nullptr && decision_.persisted.was_ready) {
    // Somebody deleted it, or its node is gone. What it knew is gone with it: the run starts again from its last checkpoint.
    if (!CountRestart(RestartCause::kBrokerLost, "the broker's pod is gone")) return;
  } else {
    Resize();
  }
  if (WaitForClusters()) return;
  decision_.prepare = true;
  if (!decision_.persisted.started_at.has_value()) decision_.persisted.started_at = seen_.now;
  // Once there is a broker the attempt has begun, and pods of an earlier one that turn up late (their cluster is back) hold up nothing.
  if (RemoveOldAttempts() && Broker(decision_.persisted.attempt) == nullptr) {
    decision_.state = JobState::kRestarting;
    const std::string unseen = UnlistedClusters();
    Condition(JobCondition::kReady, false, "Restarting",
              unseen.empty() ? "Waiting for the pods of the attempt before to end."
                             : absl::StrCat("Waiting for pods of the attempt before, which may still be at work: ", unseen));
    Condition(JobCondition::kDegraded, false, "Restarting", "The job starts again.");
    return;
  }
  const PodView* const broker = Broker(decision_.persisted.attempt);
  decision_.create_broker = broker == nullptr;
  if (broker != nullptr && broker->deleted_at.has_value()) Remove(*broker);  // by force, when its time is over
  ManageExecutors();
  WaitForAnswers();
}

bool Decider::WaitForPlacement() {
  // It stays as it is until somebody asks again: what decided the placement of the attempt.
  if (!seen_.hint_reason.empty()) {
    decision_.conditions.push_back({JobCondition::kPlacementHint, seen_.follows_plan, seen_.hint_reason, seen_.hint});
  }
  const bool none = seen_.slots.empty();
  if (!none && (seen_.placed || seen_.placement_shortage.empty())) return false;
  const std::string& why = none ? seen_.placement_problem : seen_.placement_shortage;
  const absl::Time at = seen_.persisted.capacity_wait_since.value_or(seen_.now) + kCapacityWait;
  if (!none && seen_.now >= at) return false;  // with fewer
  decision_.state = JobState::kPending;
  // Those of the attempt before must not wait for the next one's room.
  RemoveOldAttempts();
  const char* const reason = none ? kPlacementFailed : kInsufficientCapacity;
  Condition(JobCondition::kScheduled, false, reason, why);
  Condition(JobCondition::kReady, false, reason, why);
  Condition(JobCondition::kDegraded, false, reason, "The job has not begun.");
  RequeueAt(none ? seen_.now + kCapacityRecheckPeriod : at);
  PendingDeadline(why);
  return true;
}

bool Decider::WaitForClusters() {
  // Of an attempt that has begun only what is refused is missing; one that begins just now is placed first.
  if (decision_.persisted.attempt != seen_.persisted.attempt || Broker(decision_.persisted.attempt) != nullptr) return false;
  const ClusterView* const refusing = Refusing();
  if (refusing == nullptr || refusing->dry_run_accepted) return false;
  decision_.refused = true;
  decision_.state = decision_.persisted.attempt == 0 ? JobState::kPending : JobState::kRestarting;
  RemoveOldAttempts();
  // Made before that was known: without a broker they can only wait.
  for (const PodView* pod : Pods()) {
    if (pod->attempt == decision_.persisted.attempt) Remove(*pod);
  }
  SetQuotaReserved();
  const char* const reason = refusing->refusal->reason.c_str();
  Condition(JobCondition::kScheduled, false, reason, refusing->refusal->message);
  Condition(JobCondition::kReady, false, reason, refusing->refusal->message);
  Condition(JobCondition::kDegraded, false, reason, "The job has not begun.");
  // When it is asked again; one that should have been, and has not answered, is asked for as long as it takes.
  if (refusing->retry_at < absl::InfiniteFuture())
    RequeueAt(RefusesPods(*refusing) ? refusing->retry_at : seen_.now + kClusterRecheckPeriod);
  PendingDeadline(refusing->refusal->message);
  return true;
}

void Decider::WaitForAnswers() {
  const auto dry_run_pending = [this](const manifests::ExecutorSlot& slot) {
    const ClusterView* const cluster = Cluster(slot.cluster);
    return cluster != nullptr && cluster->dry_run_pending;
  };
  if (decision_.persisted.failed || Broker(seen_.persisted.attempt) != nullptr) return;
  if (std::none_of(seen_.slots.begin(), seen_.slots.end(), dry_run_pending)) return;
  decision_.create_broker = false;
  decision_.create.clear();
  if (seen_.clusters.front().waiting.empty()) {
    std::erase_if(decision_.conditions, [](const DesiredCondition& desired) {
      return desired.type == JobCondition::kReady || desired.type == JobCondition::kScheduled;
    });
  }
  RequeueAt(seen_.now + kDryRunRecheckPeriod);
}

void Decider::Finish() {
  decision_.state = JobState::kComplete;
  decision_.persisted.complete = true;
  decision_.persisted.completed_at = seen_.now;
  Condition(JobCondition::kComplete, true, "Completed", "The job has made all its steps.");
  Condition(JobCondition::kReady, false, "Completed", "The job is over.");
  Condition(JobCondition::kDegraded, false, "Completed", "The job is over.");
  if (!decision_.progress_resumed) EndRestarting("Completed", "The job is over.");
  AddEvent(false, "Completed", "The job has made all its steps.");
}

// By the last word of a broker whose pod went before anybody had looked: a drain, or somebody's hand. Interrupted ones end with another
// code.
bool Decider::RunCompleted() const {
  return decision_.persisted.attempt == seen_.persisted.attempt && seen_.final_report.has_value() && seen_.final_report->exit_code == 0;
}

bool Decider::BrokerDrained() const {
  return decision_.persisted.attempt == seen_.persisted.attempt && seen_.final_report.has_value() &&
         seen_.final_report->exit_code == base::kExitInterrupted && !seen_.left_disruption.empty();
}

bool Decider::MissingData() {
  if (seen_.persisted.started_at.has_value() || !Pods().empty()) return false;
  const absl::Status place = manifests::CheckDataVolumes(spec_);
  if (!place.ok()) RefuseSpec(FailedReason::kInvalidInput, std::string(place.message()));
  return !place.ok();
}

bool Decider::PastDeadline() {
  if (!spec_.active_deadline_seconds.has_value() || !seen_.persisted.started_at.has_value()) return false;
  const absl::Time at = *seen_.persisted.started_at + absl::Seconds(*spec_.active_deadline_seconds);
  if (seen_.now < at) {
    RequeueAt(at);
    return false;
  }
  Fail(FailedReason::kDeadlineExceeded,
       absl::StrCat("The job was active for longer than spec.activeDeadlineSeconds, ", *spec_.active_deadline_seconds, " s."));
  return true;
}

bool Decider::Restart(const PodView& pod) {
  const FailurePolicyResult verdict = ApplyFailurePolicy(spec_.failure_policy, pod);
  const std::string by = absl::StrCat(verdict.rule.empty() ? "" : absl::StrCat(" (rule ", verdict.rule, ")"), UnstartedExecutorsText());
  switch (verdict.action) {
    case job::FailureAction::kFailJob: {
      const std::string why = absl::StrCat(verdict.description, by);
      if (!verdict.rule.empty()) {
        Fail(FailedReason::kFailurePolicy, why);
      } else {
        RefuseSpec(pod.exit_code == base::kExitInfeasible ? FailedReason::kPlacementFailed : FailedReason::kInvalidInput, why);
      }
      return false;
    }
    case job::FailureAction::kRestartJobAndIgnoreMaxRestarts:
      NextAttempt(RestartCause::kBrokerFailed, absl::StrCat(verdict.description, by));
      return true;
    // A job without its broker does not go on: what is said of executors alone starts it again.
    case job::FailureAction::kRestartJob:
    case job::FailureAction::kIgnore:
    case job::FailureAction::kRestartExecutor:
    case job::FailureAction::kReplaceCluster:
      return CountRestart(RestartCause::kBrokerFailed, absl::StrCat(verdict.description, by));
  }
  return true;
}

void Decider::Resize() {
  if (!seen_.placed) return;
  const int64_t have = manifests::CountTraining(seen_.slots), could = manifests::CountTraining(seen_.next_placement);
  const int64_t wanted = seen_.wanted;
  const bool fewer = wanted<have, more = wanted> have && could > have;
  if (!fewer && !more) {
    if (seen_.persisted.extra_capacity_since.has_value())
      Condition(JobCondition::kResizing, false, "CapacityGone", "The room for more executors is gone.");
    return;
  }
  if (seen_.persisted.was_ready && !CheckpointSurvivesBroker()) {
    Condition(JobCondition::kResizing, false, "NoCheckpoint",
              absl::StrCat(wanted, " executors are wanted and ", have,
                           " train: without a checkpoint to go on from, in a place that outlives the broker's Pod, the job would lose its "
                           "steps by starting again with another number."));
    return;
  }
  const bool asked = seen_.wanted_when_placed > 0 && wanted != seen_.wanted_when_placed;
  const absl::Time at = seen_.persisted.extra_capacity_since.value_or(seen_.now) + absl::Seconds(spec_.executors.stabilization_seconds);
  if (more && !asked && seen_.now < at) {
    Condition(
        JobCondition::kResizing, true, "CapacityAvailable",
        absl::StrCat("There is room for more than the ", have, " executors that train: the job starts again with more, if that lasts for ",
                     "spec.executors.stabilizationSeconds, ", spec_.executors.stabilization_seconds, " s."));
    RequeueAt(at);
    return;
  }
  Condition(JobCondition::kResizing, false, "Resized", absl::StrCat("From ", have, " executors towards ", wanted, "."));
  NextAttempt(RestartCause::kResized, absl::StrCat("from ", have, " executors to ", fewer ? wanted : could));
}

}  // namespace fusionllm::op::lifecycle
