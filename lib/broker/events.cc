#include "lib/broker/events.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace fusionllm::broker {

int PlanSummary::RankOf(const std::string& device) const {
  const auto found = std::find(devices.begin(), devices.end(), device);
  return found == devices.end() ? -1 : static_cast<int>(found - devices.begin());
}

int64_t PlanSummary::MicroBatchesOf(int rank) const {
  return micro_batches_by_replica.empty() ? micro_batches / replicas : micro_batches_by_replica[static_cast<size_t>(ReplicaOf(rank))];
}

std::string PlanSummary::Describe(int rank) const {
  if (replicas == 1) return absl::StrCat("stage ", rank);
  return absl::StrFormat("stage %d of replica %d", StageOf(rank), ReplicaOf(rank));
}

void SetStageAndReplica(const PlanSummary& plan, int rank, EmitEvent& event) {
  if (rank < 0) return;
  event.stage = plan.StageOf(rank);
  if (plan.replicas > 1) event.replica = plan.ReplicaOf(rank);
}

}  // namespace fusionllm::broker
