// The kubeconfigs of members: what Secrets in the operator's namespace hold, or what is made of ClusterProfiles on the hub.
//
// A Secret or ClusterProfile is watched, by its name, from when it is first asked for until RetainOnly() leaves it out. Thread-safe.
#pragma once

#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/kube/client/api_client.h"
#include "lib/kube/watch/object.h"
#include "lib/kubeapi/fusion_cluster.h"
#include "operator/federation/access_providers.h"
#include "operator/federation/watched_objects.h"

namespace fusionllm::op::federation {

struct KubeconfigOptions {
  std::string ns;             // of the operator: where Secrets are, and ClusterProfiles whose namespace is not named
  AccessProviders providers;  // for ClusterProfiles; empty: none is used
  // Those of the FusionClusters for which `concerned` holds may be others than before; must not block.
  std::function<void(const std::function<bool(const kubeapi::FusionClusterSpec&)>& concerned)> changed;
};

class Kubeconfigs {
 public:
  // `hub`, `clock` and `metrics` (which may be null) must outlive it.
  Kubeconfigs(KubeconfigOptions options, kube::ApiClient& hub, kube::Clock& clock, const kube::InformerMetrics* metrics);

  struct Found {
    absl::StatusOr<std::string> text;
    std::string reason = {};  // CamelCase; why there is none
  };
  // Of a member, not the hub itself. Blocks when the hub must be asked.
  Found Read(const kubeapi::FusionClusterSpec& spec, std::stop_token stop);
  // What none of these FusionClusters names is watched no more.
  void RetainOnly(const std::vector<kube::ObjectPtr>& clusters);

 private:
  kube::ObjectKey SecretOf(const kubeapi::FusionClusterSpec& spec) const;   // only where it names one
  kube::ObjectKey ProfileOf(const kubeapi::FusionClusterSpec& spec) const;  // so
  Found FromSecret(const kubeapi::FusionClusterSpec& spec, std::stop_token stop);
  Found FromProfile(const kubeapi::FusionClusterSpec& spec, std::stop_token stop);

  const KubeconfigOptions options_;
  WatchedObjects secrets_, profiles_;
};

}  // namespace fusionllm::op::federation
