// The client of a member, by a kubeconfig that somebody else wrote.
#pragma once

#include <memory>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "lib/kube/client/rest_client.h"
#include "lib/kubeapi/fusion_cluster.h"
#include "operator/federation/member_link.h"

namespace fusionllm::op {

struct MemberClientOptions {
  std::string user_agent;
  MemberLimits limits;
  // Programs that print credentials which a kubeconfig may have us run, by the command as it is written there; others are refused.
  std::set<std::string> exec_allowed;
  // The same of what is made of a ClusterProfile: the programs of access providers, which no kubeconfig in a Secret gets to run.
  std::set<std::string> profile_exec_allowed = {};
};

// How its API server is asked, by its FusionCluster and by what the operator allows each member.
kube::RestClientOptions RestOptionsOf(const kubeapi::FusionClusterSpec& spec, const MemberClientOptions& options);

// Does not connect yet. InvalidArgument, with the reasons, for a kubeconfig that must not be used. `clock` and `metrics` (which may be
// null) must outlive the client.
absl::StatusOr<std::unique_ptr<kube::ApiClient>> ConnectMember(const std::string& kubeconfig, const kubeapi::FusionClusterSpec& spec,
                                                               const MemberClientOptions& options, kube::Clock& clock,
                                                               const kube::RestMetrics* metrics);

}  // namespace fusionllm::op
