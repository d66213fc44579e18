// Makes a cluster a member of a hub: an account with the operator's rights in the member, and on the hub a Secret with a kubeconfig of that
// account and the FusionCluster that names it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lib/kube/auth/client_config.h"
#include "lib/kube/client/api_client.h"
#include "lib/kube/clock.h"

namespace fusionllm::cli {

struct AddClusterOptions {
  std::string name;                         // of the FusionCluster and its Secret
  std::string hub_namespace = "fusionllm";  // where the operator runs
  std::string member_namespace = "fusionllm";
  std::string account = "fusion-hub";  // service account in the member; hubs that share a member take different ones
  // Namespaces of jobs, the only ones with rights for Pods and Secrets; or all_namespaces: all, and job_namespaces is empty.
  std::vector<std::string> job_namespaces;
  bool all_namespaces = false;
  std::vector<std::string> job_service_accounts;  // that Pods of jobs may use besides their namespace's `default`
  bool owner_references_enforced = false;         // the member has OwnerReferencesPermissionEnforcement
  std::string server;                             // URL by which the hub reaches the member; empty: that of the member's kubeconfig
  absl::Duration timeout = absl::Seconds(60);     // for the member's authority, and then for the hub to be connected
};

struct AddedCluster {
  std::string server;
  bool ready = false;
  std::string message;  // of the condition Ready
};

// Calls block. `report_progress` is called with what has been done, a line each. Nothing is made before the hub has said, of a dry run,
// that it takes its part. Running it again with the same options makes a new token and changes nothing else that is as it should be; with
// others the account has the rights of these alone. A token ends after 30 days, or when the member says, and with a Secret of the member to
// which it is bound; the hub's operator renews it. `member_config` is how `member` is reached: its server, authority and TLS name go into
// the kubeconfig, its credentials do not.
//
// Neither the namespaces of Kubernetes itself (kube-*) nor that of the account are for jobs, and nothing is made in the member that
// kubeapi::PodPolicySpec() and PlacePolicySpec() refuse, which its API server sees to. A server on loopback, which leads the hub to itself,
// is refused where the member's kubeconfig says it, and reported where `options.server` does.
//
// Errors: InvalidArgument for what cannot be registered; AlreadyExists where name or Secret belong to something else; NotFound where the
// hub has no operator's namespace or no FusionClusters; FailedPrecondition where jobs have objects in namespaces that would lose the hub's
// rights (nothing is changed then); DeadlineExceeded where the authority did not come; the servers' refusals. A member that the hub cannot
// connect to in time is no error: `ready` is false and `message` says why.
absl::StatusOr<AddedCluster> AddCluster(const AddClusterOptions& options, kube::ApiClient& hub, kube::ApiClient& member,
                                        const kube::ClientConfig& member_config, kube::Clock& clock,
                                        const std::function<void(const std::string&)>& report_progress);

}  // namespace fusionllm::cli
