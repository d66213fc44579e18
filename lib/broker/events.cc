#include "lib/broker/events.h"

namespace fusionllm::broker {

void SetStageAndReplica(const RunPlan& plan, int rank, EmitEvent& event) {
  if (rank < 0) return;
  event.stage = plan.StageOf(rank);
  if (plan.plan.replicas > 1) event.replica = plan.ReplicaOf(rank);
}

}  // namespace fusionllm::broker
