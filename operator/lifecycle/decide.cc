#include "operator/lifecycle/decide.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "operator/lifecycle/failure.h"

namespace fusionllm::op {
namespace {

constexpr int kMessageBytes = 1024;

std::string Cut(std::string text) {
  if (text.size() <= kMessageBytes) return text;
  size_t at = kMessageBytes;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;  // not inside a character
  return text.substr(0, at) + " ...";
}

class Decider {
 public:
  explicit Decider(const Observation& observed) : seen_(observed), spec_(observed.job.spec) { decision_.memory = observed.memory; }

  Decision Run() {
    if (seen_.deleted_at.has_value()) {
      Delete();
    } else if (seen_.memory.complete || seen_.memory.failed) {
      AfterTheEnd();
    } else if (spec_.suspend) {
      Suspend();
    } else {
      // A status that was lost, with its job restored from a copy: the pods know better which attempt this is.
      for (const PodView* pod : Pods()) decision_.memory.attempt = std::max(decision_.memory.attempt, pod->attempt);
      Go();
    }
    return std::move(decision_);
  }

 private:
  // ---- what there is ----
  std::vector<const PodView*> Pods() const {
    std::vector<const PodView*> pods;
    for (const ClusterView& cluster : seen_.clusters) {
      for (const PodView& pod : cluster.pods) pods.push_back(&pod);
    }
    return pods;
  }

  // Where nobody has been able to look for so long that what ran there counts as gone.
  bool Lost(const std::string& cluster) const {
    return std::any_of(seen_.clusters.begin(), seen_.clusters.end(), [&](const auto& c) { return c.lost && c.name == cluster; });
  }

  static bool Ended(const PodView& pod) { return pod.phase == PodPhase::kSucceeded || pod.phase == PodPhase::kFailed; }

  const PodView* Broker(int64_t attempt) const {
    for (const PodView* pod : Pods()) {
      if (pod->role == kBrokerRole && pod->attempt == attempt) return pod;
    }
    return nullptr;
  }

  const PodView* Executor(const ExecutorSlot& slot, int64_t attempt) const {
    for (const PodView* pod : Pods()) {
      if (pod->role == kExecutorRole && pod->attempt == attempt && pod->cluster == slot.cluster && pod->index == slot.index) return pod;
    }
    return nullptr;
  }

  // ---- what to say ----
  void Condition(const char* type, bool status, const char* reason, std::string message) {
    decision_.conditions.push_back({type, status, reason, Cut(std::move(message))});
  }

  void Say(bool warning, const char* reason, std::string message) { decision_.notes.push_back({warning, reason, Cut(std::move(message))}); }

  void LookAgain(absl::Time at) {
    decision_.look_again = std::min(decision_.look_again, std::max(at - seen_.now, absl::Milliseconds(100)));
  }

  // ---- what to do ----
  void Remove(const PodView& pod) {
    if (!pod.deleted_at.has_value()) {
      decision_.remove.push_back({pod.cluster, pod.name, pod.uid, std::nullopt});
      return;
    }
    // A pod on a lost node ends when its kubelet says so, which is never.
    if (spec_.force_delete_after_seconds == 0) return;
    const absl::Time force_at = *pod.deleted_at + absl::Seconds(spec_.force_delete_after_seconds);
    if (seen_.now >= force_at) {
      decision_.remove.push_back({pod.cluster, pod.name, pod.uid, 0});
    } else {
      LookAgain(force_at);
    }
  }

  // The broker first: it ends the run with a checkpoint, for which it needs the executors. True when no pod is left.
  bool WindDown() {
    const std::vector<const PodView*> pods = Pods();
    const bool broker_lives = std::any_of(pods.begin(), pods.end(), [](const PodView* p) { return p->role == kBrokerRole && !Ended(*p); });
    for (const PodView* pod : pods) {
      if (pod->role == kBrokerRole || !broker_lives) Remove(*pod);
    }
    return std::all_of(pods.begin(), pods.end(), [this](const PodView* pod) { return Lost(pod->cluster); });
  }

  void Fail(const char* reason, std::string message) {
    decision_.state = JobState::kFailed;
    decision_.memory.failed = true;
    decision_.memory.completed_at = seen_.now;
    decision_.prepare = decision_.create_broker = false;
    decision_.create.clear();
    Condition("Failed", true, reason, message);
    Condition("Ready", false, reason, "The job has failed.");
    Condition("Degraded", false, reason, "The job has failed.");
    Say(true, reason, std::move(message));
  }

  void Delete() {
    decision_.state = JobState::kDeleting;
    const bool preserve = spec_.preserve_resources_on_deletion;
    std::vector<std::string> left, away;
    for (const ClusterView& cluster : seen_.clusters) {
      const bool there = preserve ? cluster.anchor && !cluster.anchor_preserved : cluster.anchor || !cluster.pods.empty();
      // What a cluster that is away has is not known, if nobody has looked since the operator began.
      if (cluster.reachable ? there : there || cluster.used) (cluster.reachable ? left : away).push_back(cluster.name);
      if (preserve) continue;
      for (const PodView& pod : cluster.pods) {
        if (pod.deleted_at.has_value()) Remove(pod);  // by force, when its time is over
      }
    }
    (preserve ? decision_.preserve_anchors : decision_.delete_anchors) = !left.empty() || !away.empty();
    // A cluster that is away must not hold a job for ever: what is left there is seen to when it is back.
    const absl::Time give_up = *seen_.deleted_at + absl::Seconds(std::max<int64_t>(spec_.force_delete_after_seconds, 60));
    const bool done = left.empty() && (away.empty() || seen_.now >= give_up);
    if (!left.empty()) {
      Condition("Deleting", true, preserve ? "Preserving" : "CleaningUp",
                preserve ? absl::StrCat("Marking what stays in ", absl::StrJoin(left, ", "), ".")
                         : absl::StrCat("Waiting for objects in ", absl::StrJoin(left, ", "), "."));
    }
    if (!away.empty()) {
      Condition("Deleting", true, "ClusterUnreachable",
                absl::StrCat("Objects may be left in ", absl::StrJoin(away, ", "), ", which cannot be reached."));
      if (!done) LookAgain(give_up);
    }
    if (done) decision_.tombstones = std::move(away);
    decision_.remove_finalizer = done;
  }

  void AfterTheEnd() {
    decision_.state = seen_.memory.complete ? JobState::kComplete : JobState::kFailed;
    if (spec_.clean_pod_policy == job::CleanPodPolicy::kAll) {
      decision_.delete_anchors = std::any_of(seen_.clusters.begin(), seen_.clusters.end(), [](const auto& c) { return c.anchor; });
    } else if (spec_.clean_pod_policy == job::CleanPodPolicy::kRunning) {
      for (const PodView* pod : Pods()) {
        if (!Ended(*pod) || pod->deleted_at.has_value()) Remove(*pod);
      }
    }
    if (!spec_.ttl_seconds_after_finished.has_value() || !seen_.memory.completed_at.has_value()) return;
    const absl::Time at = *seen_.memory.completed_at + absl::Seconds(*spec_.ttl_seconds_after_finished);
    if (seen_.now >= at) {
      decision_.delete_job = true;
    } else {
      LookAgain(at);
    }
  }

  void Suspend() {
    const bool gone = WindDown();
    decision_.state = gone ? JobState::kSuspended : JobState::kSuspending;
    if (gone) {
      // Time that a job stands still does not count towards its deadline.
      decision_.memory.started_at.reset();
      decision_.memory.was_ready = false;
      Condition("Suspended", true, "Suspended", "The job is suspended: it has no pods.");
    } else {
      Condition("Suspended", false, "Suspending", "Saving a checkpoint and ending the pods.");
    }
    Condition("Ready", false, "Suspended", "The job is suspended.");
    Condition("Degraded", false, "Suspended", "The job is suspended.");
  }

  void Go() {
    Condition("Suspended", false, "NotSuspended", "The job is not suspended.");
    if (PastDeadline()) return;
    if (seen_.slots.empty()) {
      decision_.state = JobState::kPending;
      Condition("Dispatched", false, "PlacementFailed", seen_.placement_problem);
      PendingDeadline(seen_.placement_problem);
      return;
    }
    if (const PodView* broker = Broker(decision_.memory.attempt); broker != nullptr && Ended(*broker)) {
      if (broker->phase == PodPhase::kSucceeded) {
        Finish();
        return;
      }
      if (!Restart(*broker)) return;
    } else if (broker == nullptr && decision_.memory.was_ready) {
      // Somebody deleted it, or its node is gone. What it knew is gone with it: the run starts again from its last checkpoint.
      if (!CountRestart("the broker's pod is gone")) return;
    }
    decision_.prepare = true;
    if (!decision_.memory.started_at.has_value()) decision_.memory.started_at = seen_.now;
    // Once there is a broker the attempt has begun, and pods of an earlier one that turn up late (their cluster is back) hold up nothing.
    if (RemoveOldAttempts() && Broker(decision_.memory.attempt) == nullptr) {
      decision_.state = JobState::kRestarting;
      Condition("Ready", false, "Restarting", "Waiting for the pods of the attempt before to end.");
      Condition("Degraded", false, "Restarting", "The job starts again.");
      return;
    }
    decision_.create_broker = Broker(decision_.memory.attempt) == nullptr;
    Executors();
  }

  void Finish() {
    decision_.state = JobState::kComplete;
    decision_.memory.complete = true;
    decision_.memory.completed_at = seen_.now;
    Condition("Complete", true, "Completed", "The job has made all its steps.");
    Condition("Ready", false, "Completed", "The job is over.");
    Condition("Degraded", false, "Completed", "The job is over.");
    Say(false, "Completed", "The job has made all its steps.");
  }

  bool PastDeadline() {
    if (!spec_.active_deadline_seconds.has_value() || !seen_.memory.started_at.has_value()) return false;
    const absl::Time at = *seen_.memory.started_at + absl::Seconds(*spec_.active_deadline_seconds);
    if (seen_.now < at) {
      LookAgain(at);
      return false;
    }
    Fail("DeadlineExceeded",
         absl::StrCat("The job was active for longer than spec.activeDeadlineSeconds, ", *spec_.active_deadline_seconds, " s."));
    return true;
  }

  void PendingDeadline(const std::string& why) {
    if (!spec_.pending_deadline_seconds.has_value() || seen_.memory.was_ready) return;
    const absl::Time since = seen_.memory.started_at.value_or(seen_.created_at);
    const absl::Time at = since + absl::Seconds(*spec_.pending_deadline_seconds);
    if (seen_.now < at) {
      LookAgain(at);
      return;
    }
    Fail("PendingDeadlineExceeded",
         absl::StrCat("The job was not ready within spec.pendingDeadlineSeconds, ", *spec_.pending_deadline_seconds, " s: ", why));
  }

  // False: the job has failed.
  bool Restart(const PodView& pod) {
    const FailureVerdict verdict = Judge(spec_.failure_policy, pod);
    const std::string by = verdict.rule.empty() ? "" : absl::StrCat(" (rule ", verdict.rule, ")");
    switch (verdict.action) {
      case job::FailureAction::kFailJob: {
        const bool infeasible = verdict.rule.empty() && pod.exit_code == 3;
        const bool input = verdict.rule.empty() && pod.exit_code == 2;
        Fail(infeasible ? "PlacementFailed" : input ? "InvalidInput" : "FailurePolicy", absl::StrCat(verdict.description, by));
        return false;
      }
      case job::FailureAction::kRestartJobAndIgnoreMaxRestarts:
      case job::FailureAction::kIgnore:
        NextAttempt(absl::StrCat(verdict.description, by));
        return true;
      case job::FailureAction::kRestartJob:
      case job::FailureAction::kRestartExecutor:
      case job::FailureAction::kReplaceCluster:
        return CountRestart(absl::StrCat(verdict.description, by));
    }
    return true;
  }

  // False: the job has failed.
  bool CountRestart(const std::string& why) {
    if (decision_.memory.counted_restarts >= spec_.failure_policy.max_restarts) {
      Fail("BackoffLimitExceeded",
           absl::StrCat("No restart is left of spec.failurePolicy.maxRestarts, ", spec_.failure_policy.max_restarts, ": ", why));
      return false;
    }
    ++decision_.memory.counted_restarts;
    NextAttempt(why);
    return true;
  }

  void NextAttempt(const std::string& why) {
    ++decision_.memory.attempt;
    decision_.memory.was_ready = false;
    decision_.create_broker = false;
    decision_.create.clear();
    decision_.state = JobState::kRestarting;
    Say(true, "Restarting", absl::StrCat("Restart ", decision_.memory.attempt, " of the job: ", why));
  }

  // True while there are any. Two attempts must not write the same checkpoint, or wait for the same device; what a lost cluster may still
  // run is none of these: it is removed when the cluster is back.
  bool RemoveOldAttempts() {
    bool any = false;
    for (const PodView* pod : Pods()) {
      if (pod->attempt == decision_.memory.attempt) continue;
      any = any || !Lost(pod->cluster);
      Remove(*pod);
    }
    return any;
  }

  void Executors() {
    size_t ready = 0, wanted = 0;
    std::string trouble;
    const char* reason = "ExecutorsStarting";
    for (const ExecutorSlot& slot : seen_.slots) {
      if (!slot.spare) ++wanted;
      if (Lost(slot.cluster)) {
        if (!LoseExecutor(slot)) return SayRestarting();
        reason = "ClusterLost";
        trouble = absl::StrCat(" Cluster ", slot.cluster, " has been out of reach for longer than its workerLostTimeoutSeconds.");
        continue;
      }
      const PodView* pod = Executor(slot, decision_.memory.attempt);
      if (pod == nullptr) {
        decision_.create.push_back(slot);
        continue;
      }
      if (pod->phase == PodPhase::kFailed || pod->deleted_at.has_value()) {
        if (pod->phase == PodPhase::kFailed && !ReplaceExecutor(*pod)) return SayRestarting();
        if (pod->deleted_at.has_value()) Remove(*pod);  // by force, when its time is over; a new one takes its name then
        continue;
      }
      if (pod->ready && !slot.spare) ++ready;
      if (!pod->ready && trouble.empty() && !pod->reason.empty()) {
        reason = "ExecutorsNotReady";
        trouble = absl::StrCat(" ", pod->name, " in ", pod->cluster, ": ", pod->reason, pod->message.empty() ? "" : ": ", pod->message);
      }
    }
    const PodView* broker = Broker(decision_.memory.attempt);
    if (broker != nullptr && broker->phase == PodPhase::kPending && !broker->reason.empty() && trouble.empty()) {
      reason = "BrokerNotReady";
      trouble = absl::StrCat(" ", broker->name, ": ", broker->reason, broker->message.empty() ? "" : ": ", broker->message);
    }
    const bool all = ready == wanted && broker != nullptr && broker->phase == PodPhase::kRunning;
    Condition("Dispatched", true, "Dispatched", absl::StrCat(seen_.slots.size(), " executors placed."));
    const std::string count = absl::StrCat(ready, " of ", wanted, " executors are ready.", trouble);
    if (all && !seen_.memory.was_ready) Say(false, "Ready", count);
    decision_.memory.was_ready = decision_.memory.was_ready || all;
    decision_.state = all ? JobState::kRunning : decision_.memory.was_ready ? JobState::kRunning : JobState::kStarting;
    Condition("Ready", all, all ? "AllExecutorsReady" : reason, count);
    const bool degraded = decision_.memory.was_ready && !all;
    Condition("Degraded", degraded, degraded ? reason : "NotDegraded", degraded ? count : "No executor of a running job is missing.");
    if (!all) PendingDeadline(count);
  }

  // That the job was ready belongs to the attempt before: else its broker, which is about to go, would count as lost besides.
  void SayRestarting() {
    if (decision_.memory.failed) return;
    Condition("Ready", false, "Restarting", "The job starts again.");
    Condition("Degraded", false, "Restarting", "The job starts again.");
  }

  // Of an executor in a cluster that is lost. False: the job has failed, or starts again, without that cluster.
  bool LoseExecutor(const ExecutorSlot& slot) {
    const PodView pod{.role = kExecutorRole,
                      .cluster = slot.cluster,
                      .index = slot.index,
                      .reason = "ClusterLost",
                      .message = "its cluster has been out of reach for too long"};
    const FailureVerdict verdict = Judge(spec_.failure_policy, pod);
    switch (verdict.action) {
      case job::FailureAction::kFailJob:
        Fail("FailurePolicy", absl::StrCat(verdict.description, " (rule ", verdict.rule, ")"));
        return false;
      case job::FailureAction::kRestartJob:
      case job::FailureAction::kReplaceCluster:
        CountRestart(verdict.description);
        return false;
      case job::FailureAction::kRestartJobAndIgnoreMaxRestarts:
        NextAttempt(verdict.description);
        return false;
      case job::FailureAction::kIgnore:
      case job::FailureAction::kRestartExecutor:
        // A run that goes on does so without it, or with it: only the broker knows which of the two ways is cut. One that has not begun
        // would wait for ever.
        if (seen_.memory.was_ready) return true;
        NextAttempt(verdict.description);
        return false;
    }
    return true;
  }

  // False: the job has failed, or starts again.
  bool ReplaceExecutor(const PodView& pod) {
    const FailureVerdict verdict = Judge(spec_.failure_policy, pod);
    switch (verdict.action) {
      case job::FailureAction::kFailJob:
        Fail("FailurePolicy", absl::StrCat(verdict.description, " (rule ", verdict.rule, ")"));
        return false;
      case job::FailureAction::kRestartJob:
        CountRestart(verdict.description);
        return false;
      case job::FailureAction::kRestartJobAndIgnoreMaxRestarts:
        NextAttempt(verdict.description);
        return false;
      case job::FailureAction::kIgnore:
        return true;
      case job::FailureAction::kRestartExecutor:
      case job::FailureAction::kReplaceCluster:
        if (!pod.deleted_at.has_value()) {
          Say(true, "ExecutorLost", absl::StrCat(verdict.description, "; it is replaced"));
          Remove(pod);
        }
        return true;
    }
    return true;
  }

  const Observation& seen_;
  const job::Spec& spec_;
  Decision decision_;
};

}  // namespace

const char* Name(JobState state) {
  switch (state) {
    case JobState::kPending:
      return "Pending";
    case JobState::kStarting:
      return "Starting";
    case JobState::kRunning:
      return "Running";
    case JobState::kRestarting:
      return "Restarting";
    case JobState::kSuspending:
      return "Suspending";
    case JobState::kSuspended:
      return "Suspended";
    case JobState::kComplete:
      return "Complete";
    case JobState::kFailed:
      return "Failed";
    case JobState::kDeleting:
      return "Deleting";
  }
  return "?";
}

Decision Decide(const Observation& observed) { return Decider(observed).Run(); }

}  // namespace fusionllm::op
