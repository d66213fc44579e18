// docs/kubernetes-reference.md: FusionCluster, the status of both kinds, their conditions and the rules that the API server checks.
#pragma once

#include <string>

namespace fusionllm::kubeapi {

std::string ReferencePage();

}  // namespace fusionllm::kubeapi
