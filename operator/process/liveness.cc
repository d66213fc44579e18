#include "operator/process/liveness.h"

#include "absl/strings/str_cat.h"

namespace fusionllm::op {

absl::Status CheckAtWork(const std::vector<const kube::WorkQueue*>& queues, absl::Duration patience) {
  for (const kube::WorkQueue* queue : queues) {
    const absl::Duration longest = queue->UnfinishedWork().longest;
    if (longest < patience) continue;
    return absl::UnavailableError(
        absl::StrCat("a worker of queue ", queue->name(), " has been at one key for ", absl::FormatDuration(longest)));
  }
  return absl::OkStatus();
}

}  // namespace fusionllm::op
