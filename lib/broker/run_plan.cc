#include "lib/broker/run_plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace fusionllm::broker {
namespace {

// Null: the plan does not say.
const plan::Stage* StageOfRank(const RunPlan& run, int rank) {
  const auto stage = static_cast<size_t>(run.StageOf(rank));
  if (stage >= run.plan.stages.size()) return nullptr;
  return static_cast<size_t>(run.ReplicaOf(rank)) < run.plan.stages[stage].devices.size() ? &run.plan.stages[stage] : nullptr;
}

}  // namespace

int RunPlan::RankOf(const std::string& device) const {
  const auto found = std::find(devices.begin(), devices.end(), device);
  return found == devices.end() ? -1 : static_cast<int>(found - devices.begin());
}

int64_t RunPlan::MicroBatchesOf(int rank) const {
  const std::vector<int>& shares = plan.micro_batches_by_replica;
  return shares.empty() ? plan.micro_batches / plan.replicas : shares[static_cast<size_t>(ReplicaOf(rank))];
}

int64_t RunPlan::MemoryBytesOf(int rank) const {
  return StageOfRank(*this, rank) == nullptr ? 0 : plan.ReplicaOf(StageOf(rank), ReplicaOf(rank)).memory_bytes;
}

std::vector<int64_t> RunPlan::MemoryBytes() const {
  std::vector<int64_t> bytes;
  for (int rank = 0; rank < static_cast<int>(devices.size()); ++rank) bytes.push_back(MemoryBytesOf(rank));
  return bytes;
}

double RunPlan::BusySecondsOf(int rank) const {
  const plan::Stage* const stage = StageOfRank(*this, rank);
  const int replica = ReplicaOf(rank);
  if (stage == nullptr || stage->devices[static_cast<size_t>(replica)] != devices[static_cast<size_t>(rank)]) return 0;  // another device's
  return plan.ReplicaOf(StageOf(rank), replica).BusySeconds();
}

std::string RunPlan::Describe(int rank) const {
  if (plan.replicas == 1) return absl::StrCat("stage ", rank);
  return absl::StrFormat("stage %d of replica %d", StageOf(rank), ReplicaOf(rank));
}

std::pair<int, int> RunPlan::RanksOf(const plan::Link& link) const {
  const int count = stages();
  const bool known = link.src_stage >= 0 && link.src_stage < std::min(count, static_cast<int>(plan.stages.size()));
  if (!known || link.dst_stage < 0 || link.dst_stage >= count) return {-1, -1};
  const std::vector<std::string>& senders = plan.stages[static_cast<size_t>(link.src_stage)].devices;
  const auto replica = static_cast<int>(std::find(senders.begin(), senders.end(), link.src) - senders.begin());
  if (replica >= plan.replicas) return {-1, -1};
  return {replica * count + link.src_stage, replica * count + link.dst_stage};
}

std::vector<std::string> DevicesByRank(const plan::Plan& plan) {
  std::vector<std::string> devices;
  for (size_t replica = 0; replica < static_cast<size_t>(plan.replicas); ++replica) {
    for (const plan::Stage& stage : plan.stages) devices.push_back(stage.devices[replica]);
  }
  return devices;
}

}  // namespace fusionllm::broker
