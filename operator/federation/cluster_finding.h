// What a look at a cluster has found, and what its FusionCluster's status says of it. Pure functions.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "lib/kubeapi/fusion_cluster.h"
#include "operator/federation/member_check.h"
#include "operator/federation/token_renewal.h"

namespace fusionllm::op::federation {

// Which cluster it is. With a conflict it must not be used.
struct ClusterIdentity {
  std::string uid;       // empty: not known
  std::string conflict;  // CamelCase; empty: none
  std::string message;
};

struct ClusterFinding {
  absl::Status credentials, connection;
  std::string reason;  // of bad credentials
  ClusterIdentity identity = {};
  std::shared_ptr<const MemberFacts> facts = nullptr;  // null: not known
  std::optional<TokenFinding> token = {};              // nothing: not known
};

// A member that answers, and refuses who we are or what we may do, is one with bad credentials.
ClusterFinding ClassifyConnection(const absl::Status& connection);

// OK where a member grants all that jobs need there.
absl::Status CheckRights(const MemberFacts& facts);

// The conditions, and the UID unless there is a conflict. `not_ours`: what in the cluster has the name of something of ours and is somebody
// else's; empty: nothing.
void SetConditions(const ClusterFinding& finding, const std::string& not_ours, int64_t generation, absl::Time now,
                   kubeapi::FusionClusterStatus& status);

}  // namespace fusionllm::op::federation
