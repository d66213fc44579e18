#include "operator/lifecycle/decider.h"

#include "absl/strings/str_cat.h"
#include "lib/base/pluralize.h"
#include "operator/manifests/renewal_schedule.h"

namespace fusionllm::op::lifecycle {
namespace {

constexpr char kStrategyAdapted[] = "StrategyAdapted";
// An executor that fails sooner after it was made is replaced when it is that old: one that its node does not admit would be made and
// refused without end, many times a second.
constexpr absl::Duration kFailsAtOnce = absl::Seconds(5);

PodView KilledForMemory(PodView pod) {
  pod.reason = kKilledForMemory;
  pod.message.clear();
  return pod;
}

}  // namespace

std::string Decider::UnstartedExecutorsText() const {
  if (seen_.persisted.was_ready) return "";
  constexpr int kMaxNamed = 2;
  constexpr int kRunFailed = 5;  // of an executor that its broker asked to end
  std::string text;
  int named = 0;
  for (const auto& [place, pod] : Executors(seen_.persisted.attempt)) {
    if (pod->ready || pod->reason.empty() || pod->exit_code == 0 || pod->exit_code == kRunFailed) continue;
    if (named++ == kMaxNamed) break;
    if (const auto trouble = DiagnosePod(*pod, spec_, seen_.identity.ns)) absl::StrAppend(&text, "; ", trouble->sentence);
  }
  return text;
}

void Decider::ManageExecutors() {
  size_t ready = 0, wanted = 0;
  std::string trouble, missing;
  if (decision_.create_broker && !seen_.clusters.empty()) missing = seen_.clusters.front().waiting;
  const char* reason = kExecutorsStarting;
  const auto blame = [&](const PodView& pod) {
    if (!trouble.empty()) return;
    const std::optional<PodDiagnosis> found = DiagnosePod(pod, spec_, seen_.identity.ns);
    if (!found.has_value()) return;
    reason = found->reason;
    trouble = absl::StrCat(" ", found->sentence);
  };
  const std::map<Place, const PodView*> executors = Executors(decision_.persisted.attempt);
  for (const manifests::ExecutorSlot& slot : seen_.slots) {
    if (!slot.spare) ++wanted;
    if (Lost(slot.cluster)) {
      if (!HandleLostExecutor(slot)) return SetRestarting();
      reason = "ClusterLost";
      trouble = absl::StrCat(" ", UnreachableReason(slot.cluster),
                             " Its executors count as lost: that has lasted for its workerLostTimeoutSeconds.");
      continue;
    }
    const auto at = executors.find({slot.cluster, slot.index});
    const PodView* const pod = at == executors.end() ? nullptr : at->second;
    if (const std::string away = UnreachableReason(slot.cluster); pod == nullptr && !away.empty()) {
      reason = "ClusterUnreachable";
      trouble = absl::StrCat(" ", away);
      continue;
    }
    if (pod == nullptr) {
      const ClusterView* const cluster = Cluster(slot.cluster);
      if (cluster == nullptr || !RefusesPods(*cluster)) {
        decision_.create.push_back(slot);
      } else if (cluster->retry_at < absl::InfiniteFuture()) {
        RequeueAt(cluster->retry_at);
      }
      if (missing.empty()) missing = WaitingIn(slot.cluster);
      continue;
    }
    const bool stranded = Stranded(*pod);
    if (pod->phase == PodPhase::kFailed || pod->deleted_at.has_value() || stranded) {
      // One that somebody ends is left to that, unless it ends for something that a rule may be about.
      const bool judged = pod->phase == PodPhase::kFailed || stranded || (!Ended(*pod) && !pod->disruption.empty());
      if (judged && !ReplaceExecutor(stranded ? AsLostWithNode(*pod) : *pod)) return SetRestarting();
      // A node that is away ends nothing: its Pod stays, deleted or not.
      if (!pod->deleted_at.has_value() || pod->node_away_since.has_value()) blame(*pod);
      if (pod->deleted_at.has_value()) Remove(*pod);  // by force, when its time is over; a new one takes its name then
      continue;
    }
    // One that has done its part waits for the broker to end, and is not missed; one that gave up on the broker ends as well (adr/0013).
    // The container's end is reported a moment before that of its Pod.
    const bool ended_well = pod->phase == PodPhase::kSucceeded || (pod->phase == PodPhase::kRunning && pod->exit_code == 0);
    const bool done = ended_well && pod->reason != manifests::kBrokerLostReason;
    // Started again after it was killed for memory: before there are steps it is not known that it has enough now, and it would be ready,
    // and not, in turn.
    const bool tries_again = pod->killed_for_memory && !seen_.persisted.made_steps;
    const bool is_ready = pod->ready && !tries_again;
    if ((is_ready || done) && !slot.spare) ++ready;
    if (done || is_ready) continue;
    blame(tries_again && pod->reason.empty() ? KilledForMemory(*pod) : *pod);
  }
  const PodView* broker = Broker(decision_.persisted.attempt);
  // One that runs is not ready while its scheduler beside it is not, without which it has no plan.
  const bool broker_waits =
      broker != nullptr && (broker->phase == PodPhase::kPending || (broker->phase == PodPhase::kRunning && !broker->ready));
  if (broker_waits) blame(*broker);
  if (!missing.empty() && trouble.empty()) {
    reason = kWaitingForAddress;
    trouble = absl::StrCat(" Waiting: ", missing, ".");
  }
  if (const ClusterView* const refusing = Refusing()) {
    reason = refusing->refusal->reason.c_str();
    trouble = absl::StrCat(" ", refusing->refusal->message);
  }
  // Its Pod is replaced in a moment, and the next one's end is to come.
  if (trouble.empty() && !seen_.persisted.out_of_memory.empty()) {
    reason = kOutOfMemory;
    trouble = seen_.persisted.out_of_memory;
  }
  const bool all = ready == wanted && broker != nullptr && broker->phase == PodPhase::kRunning;
  SetScheduled();
  // Pods that run are not all that a step needs: the broker knows what else is missing, or what has become of one that is not ready.
  const bool waits = all && !seen_.wait_reason.empty();
  if (waits) reason = seen_.wait_reason.c_str();
  if ((all || trouble.empty()) && !seen_.wait.empty()) trouble = absl::StrCat(" ", seen_.wait);
  const std::string number = absl::StrCat(ready, " of ", wanted, kAreReady);
  const std::string count = all && !waits ? number : absl::StrCat(number, trouble);
  if (all && !seen_.persisted.was_ready) AddEvent(false, "Ready", number);
  decision_.persisted.was_ready = decision_.persisted.was_ready || all;
  decision_.state = decision_.persisted.was_ready ? JobState::kRunning : JobState::kStarting;
  const bool is_ready = all && (!waits || seen_.made_progress);
  Condition(JobCondition::kReady, is_ready, is_ready ? "AllExecutorsReady" : reason, is_ready ? number : count);
  SetDegraded(all && !waits ? "" : reason, count);
  RequeueAt(manifests::NextRenewalRound(seen_.identity.uid, seen_.now));
  if (all) return;
  decision_.awaits_pods = true;
  RequeueAt(seen_.now + kObjectRecheckPeriod);
  PendingDeadline(count);
}

// `missing`: why not all are there; empty: they are. The run may do with fewer all the same: a plan that was made after a loss stays where
// another does not pay.
void Decider::SetDegraded(const char* missing, const std::string& count) {
  const bool lacks = *missing != '\0';
  const bool fewer = seen_.plan_executors > 0 && seen_.plan_executors < seen_.wanted_executors;
  if (!decision_.persisted.was_ready || (!lacks && !fewer)) {
    Condition(JobCondition::kDegraded, false, kNotDegraded, kNoneIsMissing);
  } else if (lacks) {
    Condition(JobCondition::kDegraded, true, missing, count);
  } else {
    Condition(JobCondition::kDegraded, true, "PlannedWithFewer",
              absl::StrCat("The plan in force was made over ", seen_.plan_executors, " of ", seen_.wanted_executors,
                           " executors, after a loss; the broker moves to one with the others where that pays."));
  }
}

void Decider::SetRestarting() {
  if (decision_.persisted.failed) return;
  Condition(JobCondition::kReady, false, "Restarting", "The job starts again.");
  Condition(JobCondition::kDegraded, false, "Restarting", "The job starts again.");
}

void Decider::SetQuotaReserved() {
  const ClusterView* const refusing = Refusing();
  if (refusing != nullptr && refusing->refusal->reason == kQuotaExceeded) {
    Condition(JobCondition::kQuotaReserved, false, kQuotaExceeded, refusing->refusal->message);
  } else if (refusing == nullptr && seen_.persisted.quota_exceeded) {
    Condition(JobCondition::kQuotaReserved, true, "QuotaAvailable", "No quota refuses the job's Pods any more.");
  }
}

void Decider::SetScheduled() {
  SetQuotaReserved();
  if (const ClusterView* const refusing = Refusing()) {
    Condition(JobCondition::kScheduled, false, refusing->refusal->reason.c_str(), refusing->refusal->message);
    return;
  }
  const int64_t training = manifests::CountTraining(seen_.slots);
  const bool fewer = training < seen_.wanted;
  // Written down it is once the broker has an address. Until then the wait for room counts, which this condition alone remembers.
  if (fewer && !seen_.placed) {
    Condition(JobCondition::kScheduled, false, kInsufficientCapacity,
              absl::StrCat("It begins with ", training, " of ", seen_.wanted, " executors as soon as its broker can be reached. ",
                           seen_.placement_shortage));
    return;
  }
  std::string what = fewer ? absl::StrCat(training, " of ", seen_.wanted, " executors placed: there was no room for more.")
                           : absl::StrCat(base::Pluralize(static_cast<int64_t>(seen_.slots.size()), "executor"), " placed.");
  if (!seen_.strategy_change.empty()) absl::StrAppend(&what, " ", seen_.strategy_change);
  const char* const whole = seen_.strategy_change.empty() ? "Scheduled" : kStrategyAdapted;
  Condition(JobCondition::kScheduled, true, fewer ? kPartiallyScheduled : whole, std::move(what));
}

bool Decider::RestartImprovesPlacement() const {
  return CheckpointSurvivesBroker() && seen_.connected_executors.has_value() &&
         manifests::CountTraining(seen_.next_placement) > *seen_.connected_executors;
}

bool Decider::HandleLostExecutor(const manifests::ExecutorSlot& slot) {
  const PodView pod{.role = manifests::kExecutorRole,
                    .cluster = slot.cluster,
                    .index = slot.index,
                    .reason = "ClusterLost",
                    .message = "its cluster has been out of reach for too long"};
  const FailurePolicyResult verdict = ApplyFailurePolicy(spec_.failure_policy, pod);
  if (EscalateToJob(RestartCause::kClusterLost, verdict, slot.cluster)) return false;
  // A run that goes on does so without it, or with it: its broker knows which. One that has not begun would wait for ever.
  if (seen_.persisted.was_ready && !RestartImprovesPlacement()) return true;
  NextAttempt(RestartCause::kClusterLost, verdict.description);
  return false;
}

bool Decider::ReplaceExecutor(const PodView& pod) {
  const FailurePolicyResult verdict = ApplyFailurePolicy(spec_.failure_policy, pod);
  if (EscalateToJob(RestartCause::kExecutorFailed, verdict, pod.cluster)) return false;
  if (verdict.action == job::FailureAction::kRestartExecutor && !pod.deleted_at.has_value()) {
    // One from the future says that the clocks differ, and nothing of how long it was there.
    const absl::Duration age = seen_.now - pod.created_at;
    if (pod.phase == PodPhase::kFailed && age >= absl::ZeroDuration() && age < kFailsAtOnce) {
      RequeueAt(pod.created_at + kFailsAtOnce);
      return true;
    }
    // What it ended of is reported with the condition Ready or Degraded, and which stage is lost by the broker.
    Remove(pod);
  }
  return true;
}

bool Decider::EscalateToJob(RestartCause cause, const FailurePolicyResult& verdict, const std::string& cluster) {
  switch (verdict.action) {
    case job::FailureAction::kFailJob:
      Fail(FailedReason::kFailurePolicy, absl::StrCat(verdict.description, " (rule ", verdict.rule, ")"));
      return true;
    case job::FailureAction::kRestartJob:
      CountRestart(cause, verdict.description);
      return true;
    case job::FailureAction::kRestartJobAndIgnoreMaxRestarts:
      NextAttempt(cause, verdict.description);
      return true;
    case job::FailureAction::kReplaceCluster:
      LeaveCluster(cause, cluster, verdict);
      return true;
    case job::FailureAction::kIgnore:
    case job::FailureAction::kRestartExecutor:
      break;
  }
  return false;
}

void Decider::LeaveCluster(RestartCause cause, const std::string& cluster, const FailurePolicyResult& verdict) {
  decision_.persisted.avoided[cluster] = absl::StrCat("was left, by rule ", verdict.rule, ": ", verdict.description);
  CountRestart(cause, absl::StrCat(verdict.description, " (rule ", verdict.rule, "): the job leaves ", cluster));
}

}  // namespace fusionllm::op::lifecycle
