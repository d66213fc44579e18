#include "operator/controller/job_reconciler.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/str_cat.h"
#include "lib/base/host_port.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/kube/api/api_error.h"
#include "lib/kube/api/json_fields.h"
#include "operator/cache/cluster_cache.h"
#include "operator/controller/admission_dry_run.h"
#include "operator/controller/job_clusters.h"
#include "operator/controller/job_status.h"
#include "operator/controller/job_writes.h"
#include "operator/controller/leader_epoch.h"
#include "operator/controller/member_writes.h"
#include "operator/controller/newest_progress.h"
#include "operator/controller/prepare.h"
#include "operator/controller/transition_events.h"
#include "operator/lifecycle/failed_reason.h"
#include "operator/manifests/resources.h"
#include "operator/placement/fitted_strategy.h"

namespace fusionllm::op::controller {
namespace {

using kube::ReconcileResult;
using nlohmann::json;

constexpr absl::Duration kStaleAgain = absl::Milliseconds(100);
constexpr absl::Duration kNotYetAgain = absl::Seconds(1);
constexpr absl::Duration kAddressAgain = absl::Seconds(5);  // load balancers take a minute or two
// How long a job is left as it is because a cluster is being connected: one with a part there, until it is known whether the cluster is
// lost, and ClusterRegistry has had the time to say so; one that is to be placed.
const absl::Duration kListTimeout = cache::ClusterCache::kLossTimeout + absl::Seconds(5);
constexpr absl::Duration kPlaceTimeout = absl::Seconds(2);

ReconcileResult AfterAtMost(absl::Duration time) {
  return time < absl::InfiniteDuration() ? ReconcileResult::RequeueAfter(time) : ReconcileResult::Done();
}

}  // namespace

// One call of Reconcile().
class JobReconciler::Pass {
 public:
  Pass(JobReconciler& owner, const kube::WorkKey& key, const cache::JobView& view, std::stop_token stop)
      : owner_(owner), key_(key), view_(view), hub_(owner.hub_.client()), call_{.stop = std::move(stop)} {}

  // What the job has in a cluster that was connected just now is not known yet, and would be reported as missing. A job that is being
  // deleted does not wait for that: its status says where something may be.
  bool AwaitsLists() const {
    if (KeptAsItIs() || view_.deleted_at.has_value()) return false;
    for (const auto& [cluster, tried_for] : owner_.members_.Connecting()) {
      if (tried_for < (clusters_.Named(cluster) ? kListTimeout : Placed() ? absl::ZeroDuration() : kPlaceTimeout)) return true;
    }
    return false;
  }

  ReconcileResult Run() {
    if (KeptAsItIs()) return Refuse();
    lifecycle::Observation seen = Observe();
    if (awaits_advice_ || absl::IsUnavailable(queued_))
      return ReconcileResult::RequeueAfter(kNotYetAgain);  // the answer itself brings us back
    if (!queued_.ok()) return ReconcileResult::Failed(queued_);
    dry_run_.Try(owner_.hub_, seen, seen.clusters.front(), local_, call_.stop);
    const PodEvents::Answer events = owner_.pod_events_.Observe(owner_.hub_, seen.clusters.front(), seen, call_.stop);
    const lifecycle::Decision decision = lifecycle::Decide(seen);
    if (decision.refused || seen.refused()) owner_.placer_.Release(view_.identity.uid);
    const absl::Status status = CarryOut(seen, decision);
    if (AwaitsAddress(status)) return ReconcileResult::RequeueAfter(kAddressAgain);
    TellConflict(owner_.hub_.name(), dry_run_.ConflictIn(seen, seen.clusters.front().name));
    if (!status.ok()) return ReconcileResult::Failed(status);
    if (dry_run_.needs_requeue()) return ReconcileResult::RequeueAfter(kStaleAgain);
    return AfterAtMost(std::min(decision.requeue_after, events.requeue_after));
  }

  // The job's part in another cluster.
  ReconcileResult RunIn(cache::Member& member) {
    if (KeptAsItIs() || !member.reachable()) return ReconcileResult::Done();
    // The hub's part writes it before anything is made here, and that brings us back.
    if (!clusters_.Named(member.name()) && !view_.deleted_at.has_value()) return ReconcileResult::Done();
    lifecycle::Observation seen = Observe();
    if (!queued_.ok()) return ReconcileResult::RequeueAfter(kNotYetAgain);  // the hub's part says why
    const auto here = std::find_if(seen.clusters.begin() + 1, seen.clusters.end(), [&](const auto& c) { return c.name == member.name(); });
    if (here == seen.clusters.end()) return ReconcileResult::Done();  // it was let go meanwhile
    dry_run_.Try(member, seen, *here, local_, call_.stop);
    const PodEvents::Answer events = owner_.pod_events_.Observe(member, *here, seen, call_.stop);
    const lifecycle::Decision decision = lifecycle::Decide(seen);
    const lifecycle::PersistedState &now = decision.persisted, &written = seen.persisted;
    const bool all_written = now.attempt == written.attempt && now.complete == written.complete && now.failed == written.failed;
    if (!all_written && !view_.deleted_at.has_value()) return ReconcileResult::Done();  // the hub's part writes it, which brings us back
    absl::Status status = CarryOutIn(member, seen, decision);
    if (dry_run_.RecordOutcome(seen, decision, *here, status)) status = absl::OkStatus();
    TellConflict(member.name(), dry_run_.ConflictIn(seen, member.name()));
    if (dry_run_.changed() || events.changed) owner_.options_.enqueue("", JobKey());  // its part writes the status, and may await this
    if (AwaitsAddress(status)) return ReconcileResult::RequeueAfter(kAddressAgain);
    if (absl::IsUnavailable(status) && !kube::ApiErrorOf(status).has_value()) return ReconcileResult::RequeueAfter(kNotYetAgain);
    if (!status.ok()) return ReconcileResult::Failed(status);
    if (dry_run_.needs_requeue()) return ReconcileResult::RequeueAfter(kStaleAgain);
    return AfterAtMost(std::min(decision.requeue_after, events.requeue_after));
  }

 private:
  // For the cluster's own status; the job's says it as any refusal.
  void TellConflict(const std::string& cluster, const std::string& what) {
    if (!owner_.conflicts_.Set(cluster, view_.identity.uid, what) || what.empty()) return;
    base::Log(base::LogLevel::kWarning, absl::StrCat("job ", key_.ns, "/", key_.name, ": ", what));
  }

  bool Placed() const {
    const auto owner_config_map = owner_.hub_.OwnerConfigMapOf(view_.identity);
    return owner_config_map.has_value() && !manifests::ParsePlacement(view_.status.attempt, owner_config_map->placement).empty();
  }

  // Whether anything was made for it, or may have been.
  bool Begun() const {
    return view_.status.start_time.has_value() || !view_.status.cluster_statuses.empty() ||
           owner_.hub_.OwnerConfigMapOf(view_.identity).has_value();
  }

  // A spec that cannot be read says nothing of what a job at work needs. One that has ended, is to be suspended or to be deleted needs
  // nothing of that.
  bool KeptAsItIs() const {
    if (view_.job.ok() || view_.deleted_at.has_value() || kubeapi::IsFinished(view_.status.conditions)) return false;
    return !view_.suspend();
  }

  // What has begun goes on by the spec before; what has not will never.
  ReconcileResult Refuse() {
    const absl::Status& why = view_.job.status();
    kubeapi::FusionJobStatus status;
    if (Begun()) {
      status = RefusedStatus(view_,
                             "; the job stays as it is by the spec before, and nothing of it is created again until this one is corrected",
                             owner_.clock_.Now());
    } else {
      lifecycle::Decision decision;
      decision.state = lifecycle::JobState::kFailed;
      decision.persisted = PersistedStateOf(view_.status);
      decision.persisted.failed = true;
      decision.persisted.completed_at = owner_.clock_.Now();
      decision.conditions.push_back(
          {lifecycle::JobCondition::kFailed, true, lifecycle::Name(lifecycle::FailedReason::kInvalidSpec), std::string(why.message())});
      decision.conditions.push_back(
          {lifecycle::JobCondition::kReady, false, lifecycle::Name(lifecycle::FailedReason::kInvalidSpec), "The job has failed."});
      status = BuildStatus(view_, {.job = {}, .identity = view_.identity, .now = owner_.clock_.Now(), .persisted = decision.persisted},
                           decision, std::nullopt);
    }
    const absl::Status written = WriteStatus(status);
    return written.ok() ? ReconcileResult::TerminalError(why) : ReconcileResult::Failed(written);
  }

  lifecycle::Observation Observe() {
    lifecycle::Observation seen;
    seen.job = view_.known();
    seen.identity = view_.identity;
    seen.now = owner_.clock_.Now();
    seen.created_at = view_.created_at;
    seen.deleted_at = view_.deleted_at;
    seen.finalizer = std::find(view_.finalizers.begin(), view_.finalizers.end(), manifests::kFinalizer) != view_.finalizers.end();
    seen.force_delete = view_.force_delete;
    seen.generation = view_.generation;
    seen.persisted = PersistedStateOf(view_.status);
    if (view_.job.ok()) queued_ = workload_.Observe(seen);
    seen.clusters = clusters_.Look();
    if (const std::optional<cache::BrokerReport> left = owner_.hub_.LastReportOf(view_.identity);
        left.has_value() && left->attempt == seen.persisted.attempt) {
      seen.final_report = left->progress;
      seen.left_disruption = left->disruption;
    }
    PlaceExecutors(seen);
    const bool later = seen.persisted.attempt > 0 && !seen.slots.empty();
    if (later) seen.strategy_change = placement::FitStrategy(seen.job.spec.strategy, seen.slots);
    if (view_.job.ok()) clusters_.FindEndpoints(seen);
    if (key_.cluster.empty()) {
      lifecycle::Progress progress = ProgressOf(seen, seen.persisted.attempt, ask_).value_or(lifecycle::Progress());
      seen.made_progress = progress.step > 0;
      seen.plan_executors = progress.plan_executors;
      seen.wanted_executors = progress.wanted_executors;
      seen.wait_reason = std::move(progress.wait_reason);
      seen.wait = std::move(progress.wait);
    }
    dry_run_.Observe(seen);
    return seen;
  }

  // Once for each attempt: clusters that come and go meanwhile, and room, move no executor by themselves. The hub's part places; the others
  // find it settled.
  void PlaceExecutors(lifecycle::Observation& seen) {
    if (const auto owner_config_map = owner_.hub_.OwnerConfigMapOf(view_.identity)) {
      seen.slots = manifests::ParsePlacement(seen.persisted.attempt, owner_config_map->placement);
      seen.placed = !seen.slots.empty();
      seen.wanted_when_placed = owner_config_map->wanted;
    }
    const std::optional<int64_t> named = placement::RequestedExecutors(seen.job.spec.executors);
    seen.wanted = named.value_or(seen.placed ? manifests::CountTraining(seen.slots) : seen.job.spec.executors.min);
    if (seen.IsInactive() || !key_.cluster.empty()) return;
    const auto lost = [&](const manifests::ExecutorSlot& slot) {
      return std::any_of(seen.clusters.begin(), seen.clusters.end(), [&](const auto& c) { return c.lost && c.name == slot.cluster; });
    };
    const bool whole = std::none_of(seen.slots.begin(), seen.slots.end(), lost);
    if (seen.placed && whole && manifests::CountTraining(seen.slots) >= seen.wanted) return;
    if (!whole) {
      const std::optional<lifecycle::Progress> progress = ProgressOf(seen, seen.persisted.attempt, ask_);
      if (progress.has_value() && progress->executors > 0) seen.connected_executors = progress->executors;
    }
    // What cannot be made now keeps no room from others.
    const bool refused = dry_run_.IsClosed(seen, seen.clusters.front().name);
    placement::Placement placement = owner_.placer_.Propose(CandidatesRequestOf(seen), /*reserve=*/!seen.placed && !refused);
    if (seen.placed) {
      seen.next_placement = std::move(placement.slots);
      return;
    }
    awaits_advice_ = placement.pending;
    seen.slots = std::move(placement.slots);
    seen.wanted = placement.wanted;
    seen.follows_plan = placement.follows_plan;
    seen.hint_reason = std::move(placement.hint_reason);
    seen.hint = std::move(placement.hint);
    if (seen.hint_reason.empty() && kubeapi::FindCondition(view_.status.conditions, kubeapi::kPlacementHint) != nullptr) {
      seen.hint_reason = placement::kNotQueried;
      seen.hint = "This time the job leaves no choice, or is none that the scheduler can be asked about.";
    }
    seen.placement_problem = std::move(placement.problem);
    seen.placement_shortage = std::move(placement.shortage);
  }

  placement::CandidatesRequest CandidatesRequestOf(const lifecycle::Observation& seen) const {
    return {.identity = seen.identity,
            .job = &seen.job,
            .images = &owner_.options_.images,
            // Where an attempt has its place, the question is where the next one would go.
            .attempt = seen.persisted.attempt + (seen.placed ? 1 : 0),
            .avoided = seen.persisted.avoided,
            .now = seen.now,
            .named = NamedFor(seen.clusters, view_.status.cluster_statuses),
            .hub_on_demand = owner_.options_.hub_on_demand};
  }

  // Where nodes of this cluster are reached from others, as far as anybody has said; empty: as they say.
  std::string NodeAddressOf(const std::string& cluster, bool hub) const {
    std::string address;
    owner_.members_.ForEachCluster([&](const cache::ClusterFacts& facts) {
      if (address.empty() && (hub ? facts.local : facts.name == cluster)) address = facts.address;
    });
    return hub && address.empty() ? owner_.options_.hub_address : address;
  }

  PrepareRequest Request(const lifecycle::Observation& seen, int64_t attempt, const std::string& cluster, std::string node_address) const {
    return {.identity = seen.identity,
            .job = &seen.job,
            .attempt = attempt,
            .slots = seen.slots,
            .wanted = seen.wanted,
            .local = local_,
            .node_address = std::move(node_address),
            .egress_only = clusters_.EgressOnly().contains(cluster),
            .now = seen.now,
            .fence = owner_.options_.fence,
            .authorities = &owner_.authorities_};
  }

  PrepareRequest ToPrepare(const lifecycle::Observation& seen, const lifecycle::Decision& decision, const std::string& cluster,
                           bool hub) const {
    PrepareRequest request = Request(seen, decision.persisted.attempt, cluster, NodeAddressOf(cluster, hub));
    request.verify =
        decision.awaits_pods && owner_.recheck_timer_.Due(view_.identity.uid, cluster, seen.now, lifecycle::kObjectRecheckPeriod);
    request.begins = hub && !seen.placed && !HasPods(seen);
    return request;
  }

  // Those of earlier attempts read their certificates when they began, and are about to end; an owner ConfigMap that somebody has deleted
  // is made again beside pods of this one.
  static bool HasPods(const lifecycle::Observation& seen) {
    const auto of_this = [&](const lifecycle::PodView& pod) { return pod.attempt == seen.persisted.attempt; };
    return std::any_of(seen.clusters.begin(), seen.clusters.end(), [&](const lifecycle::ClusterView& cluster) {
      return std::any_of(cluster.pods.begin(), cluster.pods.end(), of_this);
    });
  }

  absl::Status CarryOut(const lifecycle::Observation& seen, const lifecycle::Decision& decision) {
    if (!decision.awaits_pods) owner_.recheck_timer_.Forget(view_.identity.uid);
    if (decision.prepare && !seen.finalizer) FUSIONLLM_RETURN_IF_ERROR(writes_.AddFinalizer());
    if (!decision.remove_finalizer) {
      FUSIONLLM_RETURN_IF_ERROR(WriteStatus(seen, decision));
      Measure(seen, decision);
    }
    // The next broker may have the address of this one, and when the job is over another job's.
    if (decision.persisted.attempt != seen.persisted.attempt || decision.persisted.complete || decision.persisted.failed) {
      owner_.progress_.Forget(view_.identity.uid);
    }
    for (const lifecycle::EventRecord& note : decision.events) owner_.events_.Record(view_.identity, note);
    const absl::Status done = CarryOutOnHub(seen, decision);
    const bool refused = dry_run_.RecordOutcome(seen, decision, seen.clusters.front(), done);
    for (size_t i = 1; i < seen.clusters.size(); ++i) owner_.options_.enqueue(seen.clusters[i].name, JobKey());
    if (!refused) FUSIONLLM_RETURN_IF_ERROR(done);
    if (view_.job.ok()) FUSIONLLM_RETURN_IF_ERROR(KeepWorkload(seen, decision));
    for (const std::string& cluster : decision.tombstones) {
      const bool preserve = seen.job.spec.preserve_resources_on_deletion;
      // Who collects on the hub does not know what it is called as a cluster that lends devices.
      const std::string& name = cluster == seen.clusters.front().name ? owner_.hub_.name() : cluster;
      FUSIONLLM_RETURN_IF_ERROR(owner_.tombstones_.Set(seen.identity, name, preserve, seen.now, call_.stop));
    }
    if (decision.remove_finalizer) FUSIONLLM_RETURN_IF_ERROR(RemoveFinalizer());
    if (decision.delete_job) FUSIONLLM_RETURN_IF_ERROR(writes_.Delete());
    return absl::OkStatus();
  }

  absl::Status KeepWorkload(const lifecycle::Observation& seen, const lifecycle::Decision& decision) {
    const absl::Status kept = workload_.Reconcile(seen, decision);
    if (kube::ApiErrorOf(kept).has_value()) owner_.events_.Record(view_.identity, {true, "WorkloadRefused", std::string(kept.message())});
    return kept;
  }

  kueue::WorkloadReconciler::Options WorkloadOptions() const {
    return {.queue = view_.queue,
            .priority_class = view_.queue_priority,
            .was_queued = kubeapi::FindCondition(view_.status.conditions, kubeapi::kAdmitted) != nullptr,
            .workloads = owner_.options_.workloads,
            .flavors = &owner_.flavors_,
            .hardware = [this](const job::Placement& placement) { return placement::HardwareOf(placement, owner_.hub_, owner_.members_); },
            .images = &owner_.options_.images};
  }

  absl::Status CarryOutOnHub(const lifecycle::Observation& seen, const lifecycle::Decision& decision) {
    const std::string& hub = seen.clusters.front().name;
    if (WritesIn(hub, decision)) FUSIONLLM_RETURN_IF_ERROR(ClaimIn(owner_.hub_));
    FUSIONLLM_RETURN_IF_ERROR(Writes(owner_.hub_).RemovePods(hub, decision.remove));
    if (decision.delete_owner_config_maps) FUSIONLLM_RETURN_IF_ERROR(Writes(owner_.hub_).DeleteOwnerConfigMap());
    if (decision.preserve_owner_config_maps) FUSIONLLM_RETURN_IF_ERROR(Writes(owner_.hub_).PreserveOwnerConfigMap());
    if (decision.remove_services)
      FUSIONLLM_RETURN_IF_ERROR(RemoveIdleIn(owner_.hub_, seen, {.cluster = local_, .is_hub = true, .over = true}));
    // The placement is made with the status as it is now; when this decision starts a new attempt, the next look makes the new one.
    if (decision.prepare && decision.persisted.attempt == seen.persisted.attempt) FUSIONLLM_RETURN_IF_ERROR(CreateOnHub(seen, decision));
    return absl::OkStatus();
  }

  absl::Status CreateOnHub(const lifecycle::Observation& seen, const lifecycle::Decision& decision) {
    FUSIONLLM_ASSIGN_OR_RETURN(const Prepared prepared,
                               PrepareHub(owner_.hub_, ToPrepare(seen, decision, local_, /*hub=*/true), call_.stop));
    if (HasPods(seen) && !prepared.changed.empty()) owner_.events_.Record(view_.identity, {false, "SpecChanged", prepared.changed});
    const int64_t attempt = decision.persisted.attempt;
    if (decision.create_broker) {
      FUSIONLLM_ASSIGN_OR_RETURN(const json pod,
                                 manifests::BrokerPod(seen.identity, seen.job, {.number = attempt, .slots = seen.slots, .hub = local_},
                                                      owner_.options_.images, prepared.owner));
      FUSIONLLM_RETURN_IF_ERROR(Writes(owner_.hub_).CreatePod(pod));
    }
    return CreateExecutors(owner_.hub_, local_, seen, decision, prepared);
  }

  absl::Status CreateExecutors(cache::Member& member, const std::string& name, const lifecycle::Observation& seen,
                               const lifecycle::Decision& decision, const Prepared& prepared) {
    const auto here = [&](const manifests::ExecutorSlot& slot) { return slot.cluster == name; };
    if (std::none_of(decision.create.begin(), decision.create.end(), here)) return absl::OkStatus();
    FUSIONLLM_ASSIGN_OR_RETURN(const manifests::DeviceKind hardware, placement::HardwareIn(member, seen.job.spec.placement));
    const std::set<std::string> egress_only = clusters_.EgressOnly();
    const bool relay = manifests::ExecutorsNeedRelay(seen.job, seen.slots, egress_only);
    for (const manifests::ExecutorSlot& slot : decision.create) {
      if (!here(slot)) continue;
      const auto advertised = prepared.executor_addresses.find(manifests::DeviceName(slot));
      const manifests::ExecutorAddresses addresses{.broker = prepared.broker_address,
                                                   .advertised = advertised == prepared.executor_addresses.end() ? "" : advertised->second,
                                                   .relay = relay,
                                                   .dialable = !relay || !egress_only.contains(name),
                                                   .away = name != local_};
      FUSIONLLM_ASSIGN_OR_RETURN(const json pod, manifests::ExecutorPod(seen.identity, seen.job, slot, decision.persisted.attempt,
                                                                        addresses, owner_.options_.images, prepared.owner, hardware));
      FUSIONLLM_RETURN_IF_ERROR(Writes(member).CreatePod(pod));
    }
    return absl::OkStatus();
  }

  absl::Status CarryOutIn(cache::Member& member, const lifecycle::Observation& seen, const lifecycle::Decision& decision) {
    if (WritesIn(member.name(), decision)) FUSIONLLM_RETURN_IF_ERROR(ClaimIn(member));
    FUSIONLLM_RETURN_IF_ERROR(Writes(member).RemovePods(member.name(), decision.remove));
    if (decision.delete_owner_config_maps) return Writes(member).DeleteOwnerConfigMap();
    if (decision.preserve_owner_config_maps) return Writes(member).PreserveOwnerConfigMap();
    const bool used = std::any_of(seen.slots.begin(), seen.slots.end(), [&](const auto& slot) { return slot.cluster == member.name(); });
    if (decision.remove_services || (decision.prepare && seen.placed && !used)) {
      return RemoveIdleIn(member, seen, {.cluster = member.name(), .over = decision.remove_services});
    }
    if (!decision.prepare || !used) return absl::OkStatus();
    FUSIONLLM_ASSIGN_OR_RETURN(const Prepared prepared,
                               PrepareRemote(member, owner_.hub_, ToPrepare(seen, decision, member.name(), /*hub=*/false), call_.stop));
    return CreateExecutors(member, member.name(), seen, decision, prepared);
  }

  absl::Status RemoveIdleIn(cache::Member& member, const lifecycle::Observation& seen, const IdleServices& idle) {
    const auto owner_config_map = member.OwnerConfigMapOf(view_.identity);
    if (!owner_config_map.has_value() || !HasIdleServices(*owner_config_map, seen.slots, idle)) return absl::OkStatus();
    FUSIONLLM_RETURN_IF_ERROR(ClaimIn(member));
    return RemoveIdleServices(member, Request(seen, seen.persisted.attempt, idle.cluster, ""), idle, call_.stop);
  }

  // Whether anything is about to be written there, apart from what is prepared.
  static bool WritesIn(const std::string& cluster, const lifecycle::Decision& decision) {
    const auto there = [&](const auto& what) { return what.cluster == cluster; };
    return decision.delete_owner_config_maps || decision.preserve_owner_config_maps || decision.create_broker ||
           std::any_of(decision.remove.begin(), decision.remove.end(), there) ||
           std::any_of(decision.create.begin(), decision.create.end(), there);
  }

  absl::Status ClaimIn(cache::Member& member) {
    if (owner_.options_.fence == nullptr) return absl::OkStatus();
    return StampLeaderEpoch(member, view_.identity, *owner_.options_.fence, call_.stop).status();
  }

  MemberWrites Writes(cache::Member& member) const { return {member, view_.identity, owner_.options_.fence, call_}; }

  absl::Status RemoveFinalizer() {
    owner_.progress_.Forget(view_.identity.uid);
    owner_.conflicts_.Forget(view_.identity.uid);
    owner_.dry_run_.Forget(view_.identity.uid);
    owner_.recheck_timer_.Forget(view_.identity.uid);
    owner_.pod_events_.Forget(view_.identity.uid);
    return writes_.RemoveFinalizer();
  }

  absl::Status WriteStatus(const lifecycle::Observation& seen, const lifecycle::Decision& decision) {
    const std::optional<lifecycle::Progress> progress =
        NewestProgress(seen, decision.persisted, ask_, owner_.hub_.LastReportOf(view_.identity));
    return WriteStatus(BuildStatus(view_, seen, decision, progress));
  }

  absl::Status WriteStatus(const kubeapi::FusionJobStatus& status) {
    if (status == view_.status) return absl::OkStatus();
    FUSIONLLM_RETURN_IF_ERROR(writes_.ApplyStatus(status));
    if (owner_.options_.metrics != nullptr) owner_.options_.metrics->WroteStatus(manifests::kFusionJobs.plural);
    for (const lifecycle::EventRecord& note : EventsForTransition(view_.status, status)) owner_.events_.Record(view_.identity, note);
    return absl::OkStatus();
  }

  // Once for each change: what follows from it is in the status that has just been written, and the next look finds it there.
  void Measure(const lifecycle::Observation& seen, const lifecycle::Decision& decision) const {
    const JobMetrics* const metrics = owner_.options_.metrics;
    if (metrics == nullptr) return;
    const lifecycle::PersistedState& before = seen.persisted;
    if (decision.persisted.was_ready && !before.was_ready && !before.restarting_since.has_value()) {
      metrics->Started(seen.now - before.resumed_at.value_or(seen.created_at));
    }
    if (decision.restart.has_value()) metrics->Restarted(*decision.restart);
    if (decision.progress_resumed && !before.resized) metrics->ProgressResumed(seen.now - *before.restarting_since);
  }

  std::optional<lifecycle::Progress> AskBrokerAt(const std::string& address) {
    return owner_.progress_.Follow(key_, view_.identity.uid, base::JoinHostPort(address, absl::StrCat(manifests::kMetricsPort)));
  }

  kube::ObjectKey JobKey() const { return {view_.identity.ns, view_.identity.name}; }

  JobReconciler& owner_;
  const kube::WorkKey& key_;
  const cache::JobView& view_;
  kube::ApiClient& hub_;
  const kube::CallOptions call_;
  const FetchProgress ask_ = [this](const std::string& address) { return AskBrokerAt(address); };
  JobWrites writes_{view_, hub_, owner_.jobs_, call_};
  kueue::WorkloadReconciler workload_{WorkloadOptions(), hub_, call_};
  const JobClusters clusters_{view_, owner_.hub_, owner_.members_};
  const std::string& local_ = clusters_.local();
  bool awaits_advice_ = false;
  absl::Status queued_;  // whether it is known what the job's queue says
  AdmissionDryRun dry_run_{owner_.dry_run_, view_.generation, owner_.options_.images};
};

JobReconciler::JobReconciler(ReconcilerOptions options, cache::JobSource& jobs, cache::Member& hub, cache::Members& members,
                             Tombstones& tombstones, cache::ProgressSource& progress, EventSink& events, kube::Clock& clock)
    : options_(std::move(options)),
      jobs_(jobs),
      hub_(hub),
      members_(members),
      placer_(hub, members, options_.hints, options_.measured),
      tombstones_(tombstones),
      progress_(progress),
      events_(events),
      clock_(clock) {}

ReconcileResult JobReconciler::Reconcile(const kube::WorkKey& key, std::stop_token stop) {
  const bool seen = jobs_.SeenWrites({key.ns, key.name});
  const std::shared_ptr<const cache::JobView> view = jobs_.Find({key.ns, key.name});
  if (view == nullptr || !view->ours) return ReconcileResult::Done();
  if (!seen || !hub_.SeenWrites(view->identity.uid)) return ReconcileResult::RequeueAfter(kStaleAgain);
  Pass pass(*this, key, *view, std::move(stop));
  // The lists themselves bring back what is in them, if they are the last; this is for all else.
  if (pass.AwaitsLists()) return ReconcileResult::RequeueAfter(kNotYetAgain);
  if (key.cluster.empty()) return pass.Run();
  for (const std::shared_ptr<cache::Member>& member : members_.Remote()) {
    if (member->name() != key.cluster) continue;
    if (!member->SeenWrites(view->identity.uid)) return ReconcileResult::RequeueAfter(kStaleAgain);
    return pass.RunIn(*member);
  }
  return ReconcileResult::Done();
}

}  // namespace fusionllm::op::controller
