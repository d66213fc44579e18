// Takes a member from its hub: the FusionCluster and its Secret, and in the member the account that `fusionctl cluster add` made there.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "lib/kube/client/api_client.h"
#include "lib/kube/clock.h"

namespace fusionllm::cli {

struct RemoveClusterOptions {
  std::string name;
  std::string hub_namespace = "fusionllm";     // where the operator runs
  std::string member_namespace = "fusionllm";  // as at `add`
  std::string account = "fusion-hub";          // as at `add`
  bool force = false;                          // although jobs have objects there
  absl::Duration timeout = absl::Seconds(60);  // for the FusionCluster to be gone
};

// Calls block. `report_progress` is called with what has been done, or left because this command's kind did not make it, a line each.
// Namespaces stay. `member` may be null: then nothing is done there. Running it again goes on where it was.
//
// Errors: NotFound where the hub has neither the FusionCluster nor a Secret of ours by that name (the member, if given, has been cleaned);
// FailedPrecondition naming the jobs that have objects there, and nothing is changed; DeadlineExceeded where the FusionCluster stays;
// the servers' refusals.
absl::Status RemoveCluster(const RemoveClusterOptions& options, kube::ApiClient& hub, kube::ApiClient* member, kube::Clock& clock,
                           const std::function<void(const std::string&)>& report_progress);

}  // namespace fusionllm::cli
