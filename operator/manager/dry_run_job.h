// Whether an API server takes FusionJobs as this build writes them, without making one: what `helm test` runs.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "lib/kube/client/api_client.h"

namespace fusionllm::op::manager {

// By dry runs in the namespace: a good job must be taken, and one that breaks a rule of the schema must be refused, or the definitions are
// older than the operator or do not check. Needs the right to create FusionJobs there. Blocks; errors say what was answered.
absl::Status DryRunJob(kube::ApiClient& hub, const std::string& ns);

}  // namespace fusionllm::op::manager
