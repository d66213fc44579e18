// The Services of a job in one cluster: makes and removes them, and says where they are reached. For one preparation (prepare.h). Blocks on
// the API server; errors are its. What only time or a person can change is none: it is said in `missing`, for the job's status.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "lib/kube/client/api_client.h"
#include "operator/manifests/identity.h"

namespace fusionllm::op::controller {

// Where a Service is reached.
struct ServiceEndpoints {
  std::string internal;  // HOST:PORT for pods of its own cluster
  std::string external;  // the same for those of other clusters, if that was asked for
  std::string missing;   // why one of the two is not known yet, in words without an end; empty: both are
};

class JobServices {
 public:
  // `node_address`: where node ports of the cluster are reached from others; empty: as its nodes say. All must outlive it.
  JobServices(kube::ApiClient& client, const manifests::JobIdentity& job, std::string cluster, std::string node_address,
              kube::CallOptions call)
      : client_(client), job_(job), cluster_(std::move(cluster)), node_address_(std::move(node_address)), call_(std::move(call)) {}

  // `wanted`: with one port. With `external`, by its node port or its load balancer, as its type says; `host` goes before what they say of
  // themselves. A Service of that name that is not the job's is left alone. `before`: where it was reached, if it was there: pods dial it
  // there still, so one that has to be made again is given the same address and node port, unless somebody else has them by now.
  absl::StatusOr<ServiceEndpoints> Make(const nlohmann::json& wanted, bool external, const ServiceEndpoints& before,
                                        const std::optional<std::string>& host = std::nullopt);
  // The job's Service of that name, if there is one. Where we may not, it stays until the job is deleted, which the log says.
  absl::Status Remove(const std::string& name);

 private:
  absl::StatusOr<nlohmann::json> Ensure(const nlohmann::json& wanted, const ServiceEndpoints& before, std::string& missing);
  absl::StatusOr<std::string> HostOf(const nlohmann::json& service, std::string& missing);
  absl::StatusOr<std::string> NodeAddress();
  std::string Called(const nlohmann::json& service) const;

  kube::ApiClient& client_;
  const manifests::JobIdentity& job_;
  const std::string cluster_, node_address_;
  const kube::CallOptions call_;
  std::optional<std::string> of_nodes_;  // once they were asked
};

}  // namespace fusionllm::op::controller
