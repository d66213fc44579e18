// Whether a cluster has what Pods name, before they are made: without it a Pod is made all the same, and waits on its node for it, of which
// nothing in the Pod tells.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/kube/client/api_client.h"
#include "operator/manifests/identity.h"

namespace fusionllm::op::controller {

// The ConfigMaps, Secrets and claims that `pods` of the job name and that its namespace does not have, and the keys that ConfigMaps and
// Secrets lack, with those that they have, in words: "namespace team has no ..."; empty: nothing is missing. What may not be looked at
// counts as being there. Of an object of which the Pods name no key the metadata alone are read, and of others the names of the keys are
// kept. `executor`: whose Secrets the operator itself makes later. Blocks on the API server; errors are its.
absl::StatusOr<std::string> MissingReferences(kube::ApiClient& client, const manifests::JobIdentity& job,
                                              const std::optional<manifests::ExecutorSlot>& executor,
                                              const std::vector<nlohmann::json>& pods, const std::stop_token& stop);

}  // namespace fusionllm::op::controller
