#include "lib/kube/client/connect.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/status_macros.h"
#include "lib/kube/auth/kubeconfig.h"

namespace fusionllm::kube {
namespace {

absl::StatusOr<ClientConfig> FindConfig(const ConnectOptions& options) {
  if (options.kubeconfig.empty() && options.context.empty()) {
    absl::StatusOr<ClientConfig> pod = InClusterConfig();
    if (!absl::IsNotFound(pod.status())) return pod;
  }
  FUSIONLLM_ASSIGN_OR_RETURN(const Kubeconfig config, LoadKubeconfigOrDefault(options.kubeconfig));
  return ResolveContext(config, options.context);
}

absl::StatusOr<std::unique_ptr<RestClient>> Open(const ClientConfig& config, const ConnectOptions& options, Clock& clock,
                                                 const RestMetrics* metrics) {
  FUSIONLLM_ASSIGN_OR_RETURN(ClusterAccess access,
                             OpenAccess(config, clock, options.access, metrics == nullptr ? nullptr : &metrics->exec()));
  return std::make_unique<RestClient>(std::move(access), options.rest, clock, metrics);
}

}  // namespace

absl::StatusOr<std::unique_ptr<RestClient>> Connect(const ConnectOptions& options, Clock& clock, const RestMetrics* metrics) {
  FUSIONLLM_ASSIGN_OR_RETURN(const ClientConfig config, FindConfig(options));
  return Open(config, options, clock, metrics);
}

absl::StatusOr<std::unique_ptr<RestClient>> ConnectUntrusted(absl::string_view kubeconfig, const ConnectOptions& options, Clock& clock,
                                                             const RestMetrics* metrics) {
  FUSIONLLM_ASSIGN_OR_RETURN(const Kubeconfig parsed, ParseKubeconfig(kubeconfig, "kubeconfig", ""));
  FUSIONLLM_ASSIGN_OR_RETURN(const ClientConfig config, ResolveContext(parsed, options.context));
  const std::vector<ConfigRefusal> refusals = CheckUntrustedConfig(config, options.access);
  if (!refusals.empty()) {
    return absl::InvalidArgumentError(absl::StrJoin(refusals, "; ", [](std::string* out, const ConfigRefusal& refusal) {
      absl::StrAppend(out, refusal.reason, ": ", refusal.message);
    }));
  }
  return Open(config, options, clock, metrics);
}

}  // namespace fusionllm::kube
