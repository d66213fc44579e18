// What one job has written and deleted in one cluster: Pods, and the owner ConfigMap as a whole. Blocks on the API server; errors are its,
// those about a Pod marked as such (MarkPodError()). What is gone already, or has changed hands, is no error.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/kube/client/api_client.h"
#include "operator/cache/member.h"
#include "operator/controller/fence.h"
#include "operator/lifecycle/decide.h"

namespace fusionllm::op::controller {

// The Pod that has the name of `wanted`, which is of the job; null: there is none any more. AlreadyExists: it is somebody else's. By a
// list, for which the operator has the right in any case. Blocks on the API server.
absl::StatusOr<nlohmann::json> FindPodOfThatName(cache::Member& member, const manifests::JobIdentity& job, const nlohmann::json& wanted,
                                                 const kube::CallOptions& call);

class MemberWrites {
 public:
  // All must outlive it. `fence`: null: there is no election.
  MemberWrites(cache::Member& member, const manifests::JobIdentity& job, const Fence* fence, const kube::CallOptions& call)
      : member_(member), job_(job), fence_(fence), call_(call) {}

  // OK too if it is there, or one of its name is still ending: their events bring the job back. AlreadyExists: it is somebody else's.
  absl::Status CreatePod(nlohmann::json pod);
  // Those in the cluster that is called so.
  absl::Status RemovePods(const std::string& cluster, const std::vector<lifecycle::PodRemoval>& removals);
  absl::Status DeleteOwnerConfigMap();
  absl::Status PreserveOwnerConfigMap();

 private:
  absl::Status Adopt(const nlohmann::json& wanted);

  cache::Member& member_;
  const manifests::JobIdentity& job_;
  const Fence* const fence_;
  const kube::CallOptions& call_;
};

}  // namespace fusionllm::op::controller
