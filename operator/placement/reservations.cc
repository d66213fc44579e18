#include "operator/placement/reservations.h"

namespace fusionllm::op {

void Reservations::Hold(const std::string& job_uid, const std::vector<ExecutorSlot>& slots, const kube::Amounts& each, absl::Time now) {
  Held held{.each = each, .until = now + kHeldFor};
  for (const ExecutorSlot& slot : slots) ++held.executors[slot.cluster];
  held_[job_uid] = std::move(held);
}

std::vector<kube::Amounts> Reservations::OfOthers(const std::string& cluster, const std::string& job_uid,
                                                  const std::map<std::string, int64_t>& pods_of_job, absl::Time now) {
  Forget(now);
  std::vector<kube::Amounts> amounts;
  for (const auto& [uid, held] : held_) {
    const auto wanted = held.executors.find(cluster);
    if (uid == job_uid || wanted == held.executors.end()) continue;
    const auto there = pods_of_job.find(uid);
    for (int64_t i = there == pods_of_job.end() ? 0 : there->second; i < wanted->second; ++i) amounts.push_back(held.each);
  }
  return amounts;
}

void Reservations::Forget(absl::Time now) {
  std::erase_if(held_, [&](const auto& entry) { return entry.second.until <= now; });
}

}  // namespace fusionllm::op
