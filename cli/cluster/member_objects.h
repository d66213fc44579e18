// The objects that `fusionctl cluster add` applies and `fusionctl cluster remove` deletes, and the kubeconfig that is made. Pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/cluster/add_cluster.h"
#include "lib/kube/api/resource.h"
#include "lib/kubeapi/pod_policy.h"

namespace fusionllm::cli {

struct ClusterObject {
  kube::Resource resource;
  kube::ObjectKey key;
  nlohmann::json body;
};

inline constexpr const char* kFieldManager = kubeapi::kFusionctlManager;

extern const kube::Resource kSecretResource, kFusionClusterResource, kNamespaceResource, kRoleBindingResource, kClusterRoleBindingResource,
    kAdmissionPolicyResource, kAdmissionPolicyBindingResource, kConfigMapResource;

// In the order in which they must be applied; the last is the Secret, empty, to which the account's tokens are bound: its deletion ends
// them.
std::vector<ClusterObject> MemberObjects(const AddClusterOptions& options);
kube::ObjectKey TokenSecret(const AddClusterOptions& options);
// The cluster role of `account` for Pods and Secrets, and the name of its bindings.
std::string WorkRole(const std::string& account);

// A kubeconfig (JSON, which is YAML) that holds everything itself. `ca_pem` may be empty: the system's authorities.
std::string MemberKubeconfig(const AddClusterOptions& options, const kube::ClientConfig& reached, const std::string& server,
                             const std::string& ca_pem, const std::string& token);
std::vector<ClusterObject> HubObjects(const AddClusterOptions& options, const std::string& kubeconfig);

}  // namespace fusionllm::cli
