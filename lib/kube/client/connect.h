// The short way from a kubeconfig, or from being in a Pod, to a client.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "lib/kube/auth/cluster_access.h"
#include "lib/kube/client/rest_client.h"

namespace fusionllm::kube {

struct ConnectOptions {
  // A kubeconfig; empty: that of the Pod when in one, else $KUBECONFIG or ~/.kube/config.
  std::string kubeconfig = {};
  std::string context = {};  // empty: the current one
  AccessOptions access = {};
  RestClientOptions rest = {};
};

// Does not connect yet. `clock` and `metrics` (which may be null) must outlive the client.
absl::StatusOr<std::unique_ptr<RestClient>> Connect(const ConnectOptions& options, Clock& clock, const RestMetrics* metrics = nullptr);

// As Connect, by the text of a kubeconfig that somebody else wrote (a Secret). InvalidArgument with all reasons when it is refused by
// CheckUntrustedConfig.
absl::StatusOr<std::unique_ptr<RestClient>> ConnectUntrusted(absl::string_view kubeconfig, const ConnectOptions& options, Clock& clock,
                                                             const RestMetrics* metrics = nullptr);

}  // namespace fusionllm::kube
