// One job and its Workload in one reconciliation: what the queue says of the job, and what the Workload needs after a decision. Blocks on
// the hub's API server.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "lib/kube/client/api_client.h"
#include "operator/kueue/flavors.h"
#include "operator/kueue/kueue_workload.h"
#include "operator/kueue/queue_status.h"
#include "operator/kueue/workload_source.h"
#include "operator/lifecycle/decide.h"

namespace fusionllm::op::kueue {

class WorkloadReconciler {
 public:
  struct Options {
    std::string queue, priority_class;  // labels of the job
    bool was_queued = false;            // its status tells of a queue: there may be a Workload although it has no label any more
    WorkloadSource* workloads = nullptr;
    Flavors* flavors = nullptr;
    // How an executor asks for the device of spec.placement.
    std::function<manifests::DeviceKind(const job::Placement& placement)> hardware;
    const manifests::Images* images = nullptr;
  };
  // What `options` points to, and `hub`, must outlive it.
  WorkloadReconciler(Options options, kube::ApiClient& hub, kube::CallOptions call)
      : options_(std::move(options)), hub_(hub), call_(std::move(call)) {}

  // Puts into `seen`, which has all else of a job whose spec is right, what the queue says, and the job as it was admitted. Unavailable: it
  // is not known yet, and is to be looked at again soon. Other errors: those of the server, or a flavor that is gone.
  absl::Status Observe(lifecycle::Observation& seen);
  // After Observe() of the same and the decision on it, whose status is written. One step: the cache brings us back for the next.
  absl::Status Reconcile(const lifecycle::Observation& seen, const lifecycle::Decision& decision);

 private:
  bool Applies() const { return options_.workloads != nullptr && (!options_.queue.empty() || options_.was_queued); }
  kube::ObjectKey Key() const { return {identity_.ns, WorkloadName(identity_)}; }
  QueuedJob CurrentJob(const lifecycle::Observation& seen) const;
  // Of the job's class; what is wrong with it is in `seen`.
  absl::Status ReadPriority(lifecycle::Observation& seen);
  absl::StatusOr<nlohmann::json> DesiredWorkload() const;
  absl::Status Create();
  absl::Status Update();
  absl::Status Delete();
  absl::Status PatchStatus(const nlohmann::json& patch);
  absl::Status Took(const absl::StatusOr<std::string>& answer);

  const Options options_;
  kube::ApiClient& hub_;
  const kube::CallOptions call_;
  manifests::JobIdentity identity_;
  job::FusionJob job_;  // as the user wrote it
  WorkloadAccess access_ = WorkloadAccess::kUnknown;
  std::shared_ptr<const nlohmann::json> workload_;
  std::optional<QueuePriority> priority_;  // absent: not read, or there is no such class
};

}  // namespace fusionllm::op::kueue
