// Brings one FusionJob closer to what it wants: looks at it and its pods, asks Decide(), and carries the answer out.
//
// A key without a cluster is the job on its hub: its status, its broker, its executors there. A key with a cluster is the job's part in
// that member, carried out by that member's own workers, so that one that hangs holds up no other. Both decide the same from the same
// caches; a member's part does nothing that the job's status does not say yet.
//
// Level-based: a call needs nothing of earlier ones. What a decision rests on (the attempt, that the job is over) is in the job's status
// before anything is done about it, so an operator killed at any line goes on where it was; so are the clusters that it may use, so that
// what is left in one that is away is known when the job goes. Nothing is decided on caches that do not show this process's own writes yet.
// Thread-safe for different jobs at once; a call blocks on the API servers.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "lib/kube/clock.h"
#include "lib/kube/queue/controller.h"
#include "operator/cache/job_source.h"
#include "operator/cache/member.h"
#include "operator/cache/progress_source.h"
#include "operator/controller/conflicts.h"
#include "operator/controller/dry_run_results.h"
#include "operator/controller/fence.h"
#include "operator/controller/job_metrics.h"
#include "operator/controller/pod_events.h"
#include "operator/controller/recheck_timer.h"
#include "operator/controller/tombstones.h"
#include "operator/kueue/workload_reconciler.h"
#include "operator/lifecycle/decide.h"
#include "operator/manifests/authority_cache.h"
#include "operator/manifests/run_objects.h"
#include "operator/placement/placer.h"

namespace fusionllm::op::controller {

class EventSink {
 public:
  virtual ~EventSink() = default;
  // Does not block.
  virtual void Record(const manifests::JobIdentity& job, const lifecycle::EventRecord& note) = 0;
};

struct ReconcilerOptions {
  manifests::Images images;
  std::string hub_address;     // where nodes of the hub are reached from members; empty: as its nodes say
  bool hub_on_demand = false;  // nodes of a hub that lends no devices are made when Pods wait for them
  // Asks for a look at a job's part in a member, or on the hub if `cluster` is empty; does not block.
  std::function<void(const std::string& cluster, const kube::ObjectKey& job)> enqueue = [](const auto&, const auto&) {};
  Fence* fence = nullptr;                              // null: there is no election
  placement::HintCache* hints = nullptr;               // null: the scheduler is not asked where jobs run fastest
  const placement::MeasuredLinks* measured = nullptr;  // null: nothing has been measured
  kueue::WorkloadSource* workloads = nullptr;          // null: labels of Kueue mean nothing
  const JobMetrics* metrics = nullptr;                 // null: none
};

class JobReconciler {
 public:
  // All must outlive it. `hub` is the cluster that has the jobs.
  JobReconciler(ReconcilerOptions options, cache::JobSource& jobs, cache::Member& hub, cache::Members& members, Tombstones& tombstones,
                cache::ProgressSource& progress, EventSink& events, kube::Clock& clock);

  kube::ReconcileResult Reconcile(const kube::WorkKey& key, std::stop_token stop);
  // Drops what is kept for nothing any more; somebody should ask for that every so often.
  void ForgetExpired() {
    placer_.ForgetExpired(clock_.Now());
    authorities_.Forget(clock_.Now());
  }
  // What was in the way of jobs, by the names of members and of `hub`.
  const Conflicts& conflicts() const { return conflicts_; }

 private:
  class Pass;

  const ReconcilerOptions options_;
  cache::JobSource& jobs_;
  cache::Member& hub_;
  cache::Members& members_;
  placement::Placer placer_;
  Tombstones& tombstones_;
  cache::ProgressSource& progress_;
  EventSink& events_;
  kube::Clock& clock_;
  manifests::AuthorityCache authorities_;
  Conflicts conflicts_;
  DryRunResults dry_run_;
  RecheckTimer recheck_timer_;
  PodEvents pod_events_;
  kueue::Flavors flavors_;
};

}  // namespace fusionllm::op::controller
