#include "operator/placement/reservations.h"

namespace fusionllm::op::placement {

void Reservations::Hold(const std::string& job_uid, const std::vector<manifests::ExecutorSlot>& slots, const kube::Amounts& each,
                        absl::Time now) {
  Held held{.each = each, .until = now + kReservationTtl};
  for (const manifests::ExecutorSlot& slot : slots) ++held.executors[slot.cluster];
  held_[job_uid] = std::move(held);
}

void Reservations::ReserveBroker(const std::string& job_uid, const std::string& cluster, const kube::Amounts& requests) {
  const auto held = held_.find(job_uid);
  if (held == held_.end()) return;
  held->second.broker_in = cluster;
  held->second.broker = requests;
}

std::vector<kube::Amounts> Reservations::ReservedByOthers(const std::string& cluster, const std::string& job_uid,
                                                          const std::map<std::string, int64_t>& pods_of_job, absl::Time now) {
  Forget(now);
  std::vector<kube::Amounts> amounts;
  for (const auto& [uid, held] : held_) {
    if (uid == job_uid) continue;
    const auto executors = held.executors.find(cluster);
    std::vector<kube::Amounts> pods;
    if (!held.broker.empty() && held.broker_in == cluster) pods.push_back(held.broker);
    if (executors != held.executors.end()) pods.resize(pods.size() + static_cast<size_t>(executors->second), held.each);
    const auto there = pods_of_job.find(uid);
    for (size_t i = there == pods_of_job.end() ? 0 : static_cast<size_t>(there->second); i < pods.size(); ++i) amounts.push_back(pods[i]);
  }
  return amounts;
}

void Reservations::Forget(absl::Time now) {
  std::erase_if(held_, [&](const auto& entry) { return entry.second.until <= now; });
}

}  // namespace fusionllm::op::placement
