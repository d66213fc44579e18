// What the operator keeps of a FusionJob.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lib/job/fusion_job.h"
#include "lib/kubeapi/fusion_job_status.h"
#include "operator/manifests/identity.h"

namespace fusionllm::op::cache {

struct JobView {
  manifests::JobIdentity identity;
  std::string resource_version;
  int64_t generation = 0;
  absl::Time created_at;
  std::optional<absl::Time> deleted_at;
  std::vector<std::string> finalizers;
  bool force_delete = false;           // kForceDeleteAnnotation is there
  bool ours = true;                    // spec.managedBy names no one else
  std::string queue;                   // of Kueue's that it waits in, by its label; empty: none
  std::string queue_priority;          // the same of its priority there
  absl::StatusOr<job::FusionJob> job;  // an error: what is wrong with the spec
  // Of a spec that is wrong: what of it says when and how the job ends, so that it can be suspended, cleaned up after and deleted all the
  // same. Null: the spec is right.
  std::shared_ptr<const job::FusionJob> ending;
  kubeapi::FusionJobStatus status;

  // As far as it is known; only one that rests may be looked at so (Observation::IsInactive).
  const job::FusionJob& known() const { return job.ok() ? *job : *ending; }
  bool suspend() const { return job.ok() || ending != nullptr ? known().spec.suspend : false; }
};

// From the object as an API server gives it. `origin`, `hub`: this hub, as of JobIdentity. InvalidArgument: it has no name or uid. A spec
// that is wrong is no error here: it must be reported in the job's status.
absl::StatusOr<JobView> ReadJob(const nlohmann::json& object, const std::string& origin, const std::string& hub);

}  // namespace fusionllm::op::cache
