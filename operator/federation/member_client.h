// The client of a member, by a kubeconfig that somebody else wrote.
#pragma once

#include <memory>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "lib/kube/auth/exec_rules.h"
#include "lib/kube/client/rest_client.h"
#include "lib/kubeapi/fusion_cluster.h"
#include "operator/federation/member_connection.h"

namespace fusionllm::op::federation {

struct MemberClientOptions {
  std::string user_agent;
  MemberLimits limits;
  // What a kubeconfig in a Secret may have us run for credentials; all else is refused.
  kube::ExecRules exec_rules;
  // The same of what is made of a ClusterProfile: the programs of access providers, whose file says of arguments and variables what a
  // profile may add. No kubeconfig in a Secret gets to run them.
  std::set<std::string> profile_exec_allowed = {};
};

// How its API server is asked, by its FusionCluster and by what the operator allows each member.
kube::RestClientOptions RestOptionsOf(const kubeapi::FusionClusterSpec& spec, const MemberClientOptions& options);

// Does not connect yet. InvalidArgument, with the reasons, for a kubeconfig that must not be used. `clock` and `metrics` (which may be
// null) must outlive the client.
absl::StatusOr<std::unique_ptr<kube::ApiClient>> ConnectMember(const std::string& kubeconfig, const kubeapi::FusionClusterSpec& spec,
                                                               const MemberClientOptions& options, kube::Clock& clock,
                                                               const kube::RestMetrics* metrics);

}  // namespace fusionllm::op::federation
