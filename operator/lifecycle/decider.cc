#include "operator/lifecycle/decider.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/object_uri.h"
#include "lib/base/truncate_utf8.h"

namespace fusionllm::op::lifecycle {
namespace {

constexpr size_t kMessageBytes = 1024;

std::string Cut(std::string text) { return text.size() <= kMessageBytes ? text : base::TruncateUtf8(text, kMessageBytes) + " ..."; }

}  // namespace

std::vector<const PodView*> Decider::Pods() const {
  std::vector<const PodView*> pods;
  for (const ClusterView& cluster : seen_.clusters) {
    for (const PodView& pod : cluster.pods) pods.push_back(&pod);
  }
  return pods;
}

const ClusterView* Decider::Cluster(const std::string& name) const {
  const auto at = std::find_if(seen_.clusters.begin(), seen_.clusters.end(), [&](const auto& c) { return c.name == name; });
  return at == seen_.clusters.end() ? nullptr : &*at;
}

bool Decider::Lost(const std::string& cluster) const {
  return std::any_of(seen_.clusters.begin(), seen_.clusters.end(), [&](const auto& c) { return c.lost && c.name == cluster; });
}

std::string Decider::UnreachableReason(const std::string& cluster) const {
  const ClusterView* const at = Cluster(cluster);
  if (at == nullptr || at->reachable) return "";
  return absl::StrCat("Cluster ", cluster, at->registered ? " cannot be reached." : " has no FusionCluster any more.");
}

std::string Decider::UnlistedClusters() const {
  if (!seen_.persisted.started_at.has_value()) return "";  // nothing has begun since the job was made, or had ended all
  std::vector<std::string> names;
  for (const ClusterView& cluster : seen_.clusters) {
    if (cluster.used && !cluster.listed && !cluster.lost) names.push_back(UnreachableReason(cluster.name));
  }
  return absl::StrJoin(names, " ");
}

std::string Decider::Called(const std::string& cluster) const {
  return !seen_.clusters.empty() && seen_.clusters.front().name == cluster ? "the hub" : cluster;
}

std::string Decider::WaitingIn(const std::string& cluster) const {
  const ClusterView* const at = Cluster(cluster);
  return at == nullptr ? "" : at->waiting;
}

const ClusterView* Decider::Refusing() const {
  const ClusterView* once = nullptr;
  const auto refuses = [&](const ClusterView* cluster) {
    if (cluster == nullptr || !cluster->refusal.has_value() || cluster->lost) return false;
    if (once == nullptr) once = cluster;
    return !cluster->dry_run_accepted;
  };
  // The broker is in the first, whichever clusters lend devices.
  if (!seen_.clusters.empty() && refuses(&seen_.clusters.front())) return once;
  for (const manifests::ExecutorSlot& slot : seen_.slots) {
    if (const ClusterView* const cluster = Cluster(slot.cluster); refuses(cluster)) return cluster;
  }
  return once;
}

const PodView* Decider::Broker(int64_t attempt) const {
  if (seen_.clusters.empty()) return nullptr;
  for (const PodView& pod : seen_.clusters.front().pods) {  // the hub: there are none elsewhere
    if (pod.role == manifests::kBrokerRole && pod.attempt == attempt) return &pod;
  }
  return nullptr;
}

std::map<Decider::Place, const PodView*> Decider::Executors(int64_t attempt) const {
  std::map<Place, const PodView*> executors;
  for (const PodView* pod : Pods()) {
    if (pod->role == manifests::kExecutorRole && pod->attempt == attempt) executors.emplace(Place(pod->cluster, pod->index), pod);
  }
  return executors;
}

void Decider::Condition(JobCondition type, bool status, const char* reason, std::string message) {
  decision_.conditions.push_back({type, status, reason, Cut(std::move(message))});
}

void Decider::AddEvent(bool warning, const char* reason, std::string message) {
  decision_.events.push_back({warning, reason, Cut(std::move(message))});
}

void Decider::RequeueAt(absl::Time at) {
  decision_.requeue_after = std::min(decision_.requeue_after, std::max(at - seen_.now, absl::Milliseconds(100)));
}

void Decider::Remove(const PodView& pod) {
  const absl::Time force_at = ForceAt(pod);
  if (seen_.now >= force_at) {
    decision_.remove.push_back({pod.cluster, pod.name, pod.uid, 0});
  } else if (!pod.deleted_at.has_value()) {
    decision_.remove.push_back({pod.cluster, pod.name, pod.uid, std::nullopt});
  } else {
    RequeueAt(force_at);
  }
}

absl::Time Decider::ForceAt(const PodView& pod) const {
  if (spec_.force_delete_after_seconds == 0) return absl::InfiniteFuture();
  const absl::Duration force_delete_after = absl::Seconds(spec_.force_delete_after_seconds);
  absl::Time at = pod.deleted_at.value_or(absl::InfiniteFuture()) + force_delete_after;
  // A broker may be at work where the kubelet alone is not. Two must not write the same checkpoint, so Kubernetes has to give it up first:
  // that we have deleted it ourselves means nothing.
  const bool given_up = pod.role == manifests::kExecutorRole || (pod.deleted_at.has_value() && !pod.disruption.empty());
  if (given_up && pod.node_away_since.has_value()) at = std::min(at, *pod.node_away_since + force_delete_after);
  return at;
}

bool Decider::Stranded(const PodView& pod) {
  if (!pod.node_away_since.has_value() || spec_.force_delete_after_seconds == 0 || Ended(pod)) return false;
  const absl::Time at = *pod.node_away_since + absl::Seconds(spec_.force_delete_after_seconds);
  if (seen_.now < at) RequeueAt(at);
  return seen_.now >= at;
}

PodView Decider::AsLostWithNode(const PodView& pod) const {
  PodView lost = pod;
  lost.reason = "NodeLost";
  lost.message =
      absl::StrCat("its node has not been ready for longer than spec.forceDeleteAfterSeconds, ", spec_.force_delete_after_seconds, " s");
  return lost;
}

bool Decider::ShutDownPods() {
  const std::vector<const PodView*> pods = Pods();
  const bool broker_lives =
      std::any_of(pods.begin(), pods.end(), [](const PodView* p) { return p->role == manifests::kBrokerRole && !Ended(*p); });
  for (const PodView* pod : pods) {
    if (pod->role == manifests::kBrokerRole || !broker_lives) Remove(*pod);
  }
  if (!UnlistedClusters().empty()) RequeueAt(seen_.now + kClusterRecheckPeriod);
  return UnlistedClusters().empty() && std::all_of(pods.begin(), pods.end(), [this](const PodView* pod) { return Lost(pod->cluster); });
}

bool Decider::RemoveOldAttempts() {
  const std::vector<const PodView*> pods = Pods();
  const auto is_old = [&](const PodView& pod) { return pod.attempt != decision_.persisted.attempt; };
  const bool broker_lives = std::any_of(pods.begin(), pods.end(),
                                        [&](const PodView* p) { return is_old(*p) && p->role == manifests::kBrokerRole && !Ended(*p); });
  const bool begun = Broker(decision_.persisted.attempt) != nullptr;
  bool any = !begun && decision_.persisted.attempt > 0 && !UnlistedClusters().empty();
  if (any) RequeueAt(seen_.now + kClusterRecheckPeriod);
  for (const PodView* pod : pods) {
    if (!is_old(*pod)) continue;
    any = any || (!begun && !Lost(pod->cluster));
    if (pod->role == manifests::kBrokerRole || !broker_lives) Remove(*pod);
  }
  return any;
}

void Decider::Fail(FailedReason why, std::string message) {
  const char* const reason = Name(why);
  decision_.state = JobState::kFailed;
  decision_.persisted.failed = true;
  decision_.persisted.completed_at = seen_.now;
  decision_.prepare = decision_.create_broker = false;
  decision_.create.clear();
  Condition(JobCondition::kFailed, true, reason, message);
  Condition(JobCondition::kReady, false, reason, "The job has failed.");
  Condition(JobCondition::kDegraded, false, reason, "The job has failed.");
  EndRestarting(reason, "The job has failed.");
  AddEvent(true, reason, std::move(message));
}

bool Decider::CheckpointSurvivesBroker() const {
  if (!spec_.checkpoint.has_value() || spec_.checkpoint->resume == "never") return false;
  // What an absolute path is, the templates of Pods know.
  const auto stays = [](const std::string& path, const job::RawExtension& volume) {
    return !volume.json.empty() || path.starts_with('/') || base::IsUri(path);
  };
  const std::optional<job::Replica>& replica = spec_.checkpoint->replica;
  return stays(spec_.checkpoint->path, spec_.checkpoint->volume) || !spec_.broker.volume.json.empty() ||
         (replica.has_value() && stays(replica->path, replica->volume));
}

bool Decider::CountRestart(RestartCause cause, const std::string& why) {
  if (decision_.persisted.counted_restarts >= spec_.failure_policy.max_restarts) {
    Fail(FailedReason::kBackoffLimitExceeded,
         absl::StrCat("No restart is left of spec.failurePolicy.maxRestarts, ", spec_.failure_policy.max_restarts, ": ", why));
    return false;
  }
  ++decision_.persisted.counted_restarts;
  NextAttempt(cause, why);
  return true;
}

void Decider::NextAttempt(RestartCause cause, const std::string& why) {
  const bool expected = cause == RestartCause::kResized;
  decision_.restart = cause;
  Condition(JobCondition::kRestarting, true, Name(cause), why);
  ++decision_.persisted.attempt;
  if (!expected) ++decision_.persisted.restarts;
  decision_.persisted.was_ready = false;
  decision_.create_broker = false;
  decision_.create.clear();
  decision_.state = JobState::kRestarting;
  if (expected) {
    AddEvent(false, "Resizing", absl::StrCat("Attempt ", decision_.persisted.attempt, " of the job: ", why));
  } else {
    AddEvent(true, "Restarting", absl::StrCat("Restart ", decision_.persisted.restarts, " of the job: ", why));
  }
}

void Decider::EndRestarting(const char* reason, const char* message) {
  if (decision_.restart.has_value()) decision_.restart.reset();  // nothing comes of it
  if (seen_.persisted.restarting_since.has_value()) Condition(JobCondition::kRestarting, false, reason, message);
}

absl::Time Decider::WaitsSince() const {
  const PersistedState& was = seen_.persisted;
  if (seen_.refused()) return was.refused_spec->since;
  if (decision_.restart.has_value() || was.suspending) return seen_.now;
  // The second is later where attempts follow that were ready and made no step.
  if (was.restarting_since.has_value()) return std::max(*was.restarting_since, was.unready_since.value_or(absl::InfinitePast()));
  if (was.started_at.has_value()) return *was.started_at;
  return was.was_suspended ? was.resumed_at.value_or(seen_.now) : seen_.created_at;
}

void Decider::PendingDeadline(const std::string& why) {
  if (!spec_.pending_deadline_seconds.has_value() || seen_.persisted.was_ready) return;
  const absl::Time at = WaitsSince() + absl::Seconds(*spec_.pending_deadline_seconds);
  if (seen_.now < at) {
    RequeueAt(at);
    return;
  }
  Fail(FailedReason::kPendingDeadlineExceeded,
       absl::StrCat("The job was not ready within spec.pendingDeadlineSeconds, ", *spec_.pending_deadline_seconds, " s: ", why));
}

}  // namespace fusionllm::op::lifecycle
