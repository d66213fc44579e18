// docs/reference/kubernetes-reference.md: FusionCluster, the status of both kinds, their conditions and the rules that the API server
// checks.
#pragma once

#include <string>
#include <vector>

namespace fusionllm::kubeapi {

// The conditions that the page describes: of a FusionJob, and of its part in a cluster.
std::vector<std::string> DocumentedJobConditions();
std::vector<std::string> DocumentedPartConditions();
// What the page says the reason of a FusionJob's condition Failed may be.
std::vector<std::string> DocumentedFailedReasons();

std::string ReferencePage();

}  // namespace fusionllm::kubeapi
