#include "operator/lifecycle/decide.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "operator/lifecycle/failure.h"

namespace fusionllm::op {
namespace {

constexpr int kMessageBytes = 1024;
// Changes of room bring a job back at once; this is for what nobody tells of.
constexpr absl::Duration kLookForRoomEvery = absl::Minutes(1);

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

  bool KeepsSteps() const { return spec_.checkpoint.has_value() && spec_.checkpoint->resume != "never"; }

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
      if (decision_.memory.started_at.has_value()) ++decision_.memory.attempt;  // which is placed anew
      decision_.memory.started_at.reset();
      decision_.memory.was_ready = false;
      decision_.memory.avoided.clear();
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
    if (WaitForPlacement()) return;
    if (const PodView* broker = Broker(decision_.memory.attempt); broker != nullptr && Ended(*broker)) {
      if (broker->phase == PodPhase::kSucceeded) {
        Finish();
        return;
      }
      if (!Restart(*broker)) return;
    } else if (broker == nullptr && decision_.memory.was_ready) {
      // Somebody deleted it, or its node is gone. What it knew is gone with it: the run starts again from its last checkpoint.
      if (!CountRestart("the broker's pod is gone")) return;
    } else {
      Resize();
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

  // True: the attempt does not begin now.
  bool WaitForPlacement() {
    const bool none = seen_.slots.empty();
    if (!none && (seen_.placed || seen_.placement_shortage.empty())) return false;
    const std::string& why = none ? seen_.placement_problem : seen_.placement_shortage;
    const absl::Time at = seen_.memory.short_since.value_or(seen_.now) + kWaitForRoom;
    if (!none && seen_.now >= at) return false;  // with fewer
    decision_.state = JobState::kPending;
    // Those of the attempt before must not wait for the next one's room.
    RemoveOldAttempts();
    Condition("Dispatched", false, none ? "PlacementFailed" : kWaitingForRoom, why);
    LookAgain(none ? seen_.now + kLookForRoomEvery : at);
    PendingDeadline(why);
    return true;
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

  void NextAttempt(const std::string& why, bool expected = false) {
    ++decision_.memory.attempt;
    decision_.memory.was_ready = false;
    decision_.create_broker = false;
    decision_.create.clear();
    decision_.state = JobState::kRestarting;
    Say(!expected, expected ? "Resizing" : "Restarting", absl::StrCat("Restart ", decision_.memory.attempt, " of the job: ", why));
  }

  // True while there are any that the next attempt must wait for: two must not write the same checkpoint, or wait for the same device. A
  // broker that lives ends first, with a checkpoint if it can: for that it needs the executors. What a lost cluster may still run is none
  // of these, it is removed when the cluster is back; and what turns up of an earlier attempt once the next one has begun holds nobody up.
  bool RemoveOldAttempts() {
    const std::vector<const PodView*> pods = Pods();
    const auto is_old = [&](const PodView& pod) { return pod.attempt != decision_.memory.attempt; };
    const bool broker_lives =
        std::any_of(pods.begin(), pods.end(), [&](const PodView* p) { return is_old(*p) && p->role == kBrokerRole && !Ended(*p); });
    const bool begun = Broker(decision_.memory.attempt) != nullptr;
    bool any = false;
    for (const PodView* pod : pods) {
      if (!is_old(*pod)) continue;
      any = any || (!begun && !Lost(pod->cluster));
      if (pod->role == kBrokerRole || !broker_lives) Remove(*pod);
    }
    return any;
  }

  // Another number of executors takes another attempt, which goes on from the checkpoint that this one leaves.
  void Resize() {
    if (!seen_.placed) return;
    const int64_t have = Training(seen_.slots), could = Training(seen_.anew);
    const int64_t wanted = seen_.wanted;
    const bool fewer = wanted<have, more = wanted> have && could > have;
    if (!fewer && !more) {
      if (seen_.memory.room_since.has_value()) Condition("Resizing", false, "NoRoomForMore", "The room for more executors is gone.");
      return;
    }
    if (seen_.memory.was_ready && !KeepsSteps()) {
      Condition(
          "Resizing", false, "NoCheckpoint",
          absl::StrCat(wanted, " executors are wanted and ", have,
                       " train: without a checkpoint to go on from the job would lose its steps by starting again with another number."));
      return;
    }
    const bool asked = seen_.wanted_when_placed > 0 && wanted != seen_.wanted_when_placed;
    const absl::Time at = seen_.memory.room_since.value_or(seen_.now) + absl::Seconds(spec_.executors.stabilization_seconds);
    if (more && !asked && seen_.now < at) {
      Condition("Resizing", true, "RoomForMore",
                absl::StrCat("There is room for more than the ", have,
                             " executors that train: the job starts again with more, if that lasts for ",
                             "spec.executors.stabilizationSeconds, ", spec_.executors.stabilization_seconds, " s."));
      LookAgain(at);
      return;
    }
    Condition("Resizing", false, "Resized", absl::StrCat("From ", have, " executors towards ", wanted, "."));
    NextAttempt(absl::StrCat("from ", have, " executors to ", fewer ? wanted : could), /*expected=*/true);
  }

  // Its executors go elsewhere from the next attempt on. False: the job has failed, or starts again.
  bool LeaveCluster(const std::string& cluster, const FailureVerdict& verdict) {
    decision_.memory.avoided[cluster] = absl::StrCat("was left, by rule ", verdict.rule, ": ", verdict.description);
    CountRestart(absl::StrCat(verdict.description, " (rule ", verdict.rule, "): the job leaves ", cluster));
    return false;
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
    SayWherePlaced();
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

  void SayWherePlaced() {
    const int64_t training = Training(seen_.slots);
    const bool fewer = training < seen_.wanted;
    Condition("Dispatched", true, fewer ? kFewerDispatched : "Dispatched",
              fewer ? absl::StrCat(training, " of ", seen_.wanted, " executors placed: there was no room for more.")
                    : absl::StrCat(seen_.slots.size(), " executors placed."));
  }

  // Whether more would train if the job started again from its checkpoint, without the clusters that are lost, than train now.
  bool PaysToMove() const { return KeepsSteps() && seen_.attending.has_value() && Training(seen_.anew) > *seen_.attending; }

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
      case job::FailureAction::kReplaceCluster:
        return LeaveCluster(slot.cluster, verdict);
      case job::FailureAction::kRestartJob:
        CountRestart(verdict.description);
        return false;
      case job::FailureAction::kRestartJobAndIgnoreMaxRestarts:
        NextAttempt(verdict.description);
        return false;
      case job::FailureAction::kIgnore:
      case job::FailureAction::kRestartExecutor:
        // A run that goes on does so without it, or with it: its broker knows which. One that has not begun would wait for ever.
        if (seen_.memory.was_ready && !PaysToMove()) return true;
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
      case job::FailureAction::kReplaceCluster:
        return LeaveCluster(pod.cluster, verdict);
      case job::FailureAction::kRestartExecutor:
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

Decision Decide(const Observation& observed) { return Decider(observed).Run(); }

}  // namespace fusionllm::op
