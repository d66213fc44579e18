#include "operator/manager/liveness.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "operator/federation/member_connection.h"

namespace fusionllm::op::manager {

absl::Status CheckWorkers(const kube::QueueMetrics& queues, absl::Duration timeout) {
  for (const auto& [name, work] : queues.UnfinishedWork()) {
    if (work.longest < timeout || absl::StartsWith(name, federation::kMemberQueue)) continue;
    return absl::UnavailableError(
        absl::StrCat("a worker of queue ", name, " has been at one key for ", absl::FormatDuration(work.longest)));
  }
  return absl::OkStatus();
}

}  // namespace fusionllm::op::manager
