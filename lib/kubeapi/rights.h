// The rights that the hub's operator needs in a member cluster, as rules of a ClusterRole (rbac.authorization.k8s.io/v1): the one source
// for the chart's role of members (helm/fusionllm/files/member-rights.yaml is generated) and for `fusionctl cluster add`. No wildcards.
#pragma once

#include <string>

#include "nlohmann/json_fwd.hpp"

namespace fusionllm::kubeapi {

// What is watched in all namespaces at once.
nlohmann::ordered_json MemberWatchRules();
// What is done in the namespaces of jobs.
nlohmann::ordered_json MemberWorkRules();
// In the account's own namespace: a new token for itself before the old one ends, and for no other account. TokenPolicySpec() of
// pod_policy.h says which tokens.
nlohmann::ordered_json MemberTokenRules(const std::string& account);
// Besides, where the admission plugin OwnerReferencesPermissionEnforcement is at work, as in OpenShift: one who names an owner that is not
// to go before its dependents needs the right to its finalizers.
nlohmann::ordered_json OwnerReferencesRule();

}  // namespace fusionllm::kubeapi
