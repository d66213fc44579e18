// Stops all jobs of a hub before its operator goes: what the chart's hook before an uninstall runs, in the operator's own image.
//
// It only asks; the operator, which still runs, does it. What is left when the operator goes would be cleared up by no one.
#pragma once

#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "lib/kube/client/api_client.h"
#include "lib/kube/clock.h"

namespace fusionllm::op::manager {

enum class StopMode {
  kSuspend,  // they stay, without Pods, and go on from their checkpoint when somebody clears spec.suspend
  kDelete,
};

struct StopJobsOptions {
  StopMode how = StopMode::kSuspend;
  std::vector<std::string> namespaces = {};  // whose jobs are the operator's; empty: all
  absl::Duration timeout = absl::Minutes(4);
};

// Blocks until no job has Pods any more, or no job is left; jobs that come meanwhile are stopped, too. Those that something else manages
// (spec.managedBy) are left alone, and so are, if the others are suspended, those that are over. What an API server refuses or does not
// answer is tried again. DeadlineExceeded after `timeout`: names the jobs that are not stopped, and what was refused last.
absl::Status StopJobs(kube::ApiClient& hub, kube::Clock& clock, const StopJobsOptions& options, std::stop_token stop);

}  // namespace fusionllm::op::manager
