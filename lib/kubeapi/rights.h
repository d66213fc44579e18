// The rights that the hub's operator needs in a member cluster, as rules of a ClusterRole (rbac.authorization.k8s.io/v1): the one source
// for the chart's role of members (helm/fusionllm/files/member-rights.yaml is generated) and for `fusionctl cluster add`. No wildcards.
#pragma once

#include "nlohmann/json_fwd.hpp"

namespace fusionllm::kubeapi {

// What is watched in all namespaces at once.
nlohmann::ordered_json MemberWatchRules();
// What is done in the namespaces of jobs.
nlohmann::ordered_json MemberWorkRules();

}  // namespace fusionllm::kubeapi
