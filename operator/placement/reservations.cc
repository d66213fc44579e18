#include "operator/placement/reservations.h"

#include <algorithm>

namespace fusionllm::op::placement {

void Reservations::Hold(const std::string& job_uid, const std::vector<manifests::ExecutorSlot>& slots, const kube::Amounts& each,
                        absl::Time now) {
  Held held{.each = std::make_shared<const kube::Amounts>(each), .until = now + kReservationTtl};
  for (const manifests::ExecutorSlot& slot : slots) ++held.executors[slot.cluster];
  held_[job_uid] = std::move(held);
}

void Reservations::ReserveBroker(const std::string& job_uid, const std::string& cluster, const kube::Amounts& requests) {
  const auto held = held_.find(job_uid);
  if (held == held_.end()) return;
  held->second.broker_in = cluster;
  held->second.broker = std::make_shared<const kube::Amounts>(requests);
}

std::vector<cache::SharedAmounts> Reservations::ReservedByOthers(const std::string& cluster, const std::string& job_uid,
                                                                 const absl::flat_hash_map<std::string, int64_t>& pods_of_job,
                                                                 absl::Time now) {
  Forget(now);
  std::vector<cache::SharedAmounts> amounts;
  for (const auto& [uid, held] : held_) {
    if (uid == job_uid) continue;
    // Those of its pods that are there have taken what was held for them: the broker first.
    const auto there = pods_of_job.find(uid);
    int64_t pods = there == pods_of_job.end() ? 0 : there->second;
    if (held.broker != nullptr && held.broker_in == cluster && --pods < 0) amounts.push_back(held.broker);
    const auto executors = held.executors.find(cluster);
    const int64_t wanted = executors == held.executors.end() ? 0 : executors->second;
    if (const int64_t missing = wanted - std::max<int64_t>(pods, 0); missing > 0) amounts.insert(amounts.end(), missing, held.each);
  }
  return amounts;
}

void Reservations::Forget(absl::Time now) {
  std::erase_if(held_, [&](const auto& entry) { return entry.second.until <= now; });
}

}  // namespace fusionllm::op::placement
