#include "lib/plan/plan.h"

#include <numeric>

namespace fusionllm::plan {

std::string Plan::CodecBetween(int src_stage, int dst_stage, int replica) const {
  for (const Link& link : links) {
    const bool same = !link.backward && link.src_stage == src_stage && link.dst_stage == dst_stage;
    if (same && link.src == stages[src_stage].devices[replica]) return link.codec;
  }
  return "fp32";
}

int Plan::MicroBatchesOf(int replica) const { return replicas == 1 ? micro_batches : micro_batches_by_replica[replica]; }

int Plan::FirstMicroBatchOf(int replica) const {
  return std::accumulate(micro_batches_by_replica.begin(), micro_batches_by_replica.begin() + replica, 0);
}

Replica Plan::ReplicaOf(int stage, int replica) const {
  const Stage& whole = stages[stage];
  if (!whole.by_replica.empty()) return whole.by_replica[replica];
  return {.compute_seconds = whole.compute_seconds,
          .codec_seconds = whole.codec_seconds,
          .update_seconds = whole.update_seconds,
          .in_flight = whole.in_flight,
          .memory_bytes = whole.memory_bytes};
}

}  // namespace fusionllm::plan
