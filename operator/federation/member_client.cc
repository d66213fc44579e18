#include "operator/federation/member_client.h"

#include <utility>

#include "lib/kube/client/connect.h"

namespace fusionllm::op::federation {

kube::RestClientOptions RestOptionsOf(const kubeapi::FusionClusterSpec& spec, const MemberClientOptions& options) {
  return {.user_agent = options.user_agent,
          .requests_per_second = static_cast<double>(spec.qps),
          .burst = static_cast<int>(spec.burst),
          .max_concurrent_requests = static_cast<int>(spec.max_concurrent_requests),
          .max_response_bytes = options.limits.answer_bytes,
          .max_list_bytes = options.limits.list_bytes};
}

absl::StatusOr<std::unique_ptr<kube::ApiClient>> ConnectMember(const std::string& kubeconfig, const kubeapi::FusionClusterSpec& spec,
                                                               const MemberClientOptions& options, kube::Clock& clock,
                                                               const kube::RestMetrics* metrics) {
  kube::ConnectOptions connect{.rest = RestOptionsOf(spec, options)};
  if (spec.cluster_profile_ref.has_value()) {
    connect.access.exec_allowed = options.profile_exec_allowed;
  } else {
    connect.access.exec_rules = options.exec_rules;
  }
  auto client = kube::ConnectUntrusted(kubeconfig, connect, clock, metrics);
  if (!client.ok()) return client.status();
  return *std::move(client);
}

}  // namespace fusionllm::op::federation
