// Whether we may do what we are about to do: asked before the work begins, so that a missing permission is named at once instead of being
// found in the middle.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/kube/client/api_client.h"

namespace fusionllm::kube {

struct Permission {
  std::string verb;  // "create", "patch", "watch"
  Resource resource;
  std::string ns = {};           // empty: all namespaces, or a kind that has none
  std::string subresource = {};  // "status"

  // "create pods in namespace team", "patch fusionjobs.fusionllm.io/status"
  std::string ToString() const;
};

// Those of them that we do not have, in their order (SelfSubjectAccessReview, one call each). An error means that it could not be asked.
absl::StatusOr<std::vector<Permission>> MissingPermissions(ApiClient& api, const std::vector<Permission>& wanted,
                                                           const CallOptions& call = {});

}  // namespace fusionllm::kube
