#include "operator/placement/reservations.h"

#include <algorithm>
#include <memory>

namespace fusionllm::op::placement {

void Reservations::Reserve(const std::string& job_uid, const std::vector<manifests::ExecutorSlot>& slots, const kube::ResourceList& each,
                           absl::Time now) {
  Release(job_uid);
  const auto shared = std::make_shared<const kube::ResourceList>(each);
  for (const manifests::ExecutorSlot& slot : slots) {
    Share& share = shares_[slot.cluster][job_uid];
    share.each = shared;
    ++share.executors;
  }
  const absl::Time until = now + kReservationTtl;
  until_[job_uid] = until;
  earliest_expiry_ = std::min(earliest_expiry_, until);
}

void Reservations::ReserveBroker(const std::string& job_uid, const std::string& cluster, const kube::ResourceList& requests) {
  if (until_.contains(job_uid)) shares_[cluster][job_uid].broker = std::make_shared<const kube::ResourceList>(requests);
}

std::vector<cache::SharedResourceList> Reservations::ReservedByOthers(const std::string& cluster, const std::string& job_uid,
                                                                      const absl::flat_hash_map<std::string, int64_t>& pods_of_job,
                                                                      absl::Time now) {
  Forget(now);
  std::vector<cache::SharedResourceList> resources;
  const auto here = shares_.find(cluster);
  if (here == shares_.end()) return resources;
  for (const auto& [uid, share] : here->second) {
    if (uid == job_uid) continue;
    // Those of its pods that are there have taken what was held for them: the broker first.
    const auto there = pods_of_job.find(uid);
    int64_t pods = there == pods_of_job.end() ? 0 : there->second;
    if (share.broker != nullptr && --pods < 0) resources.push_back(share.broker);
    const int64_t missing = share.executors - std::max<int64_t>(pods, 0);
    if (missing > 0) resources.insert(resources.end(), static_cast<size_t>(missing), share.each);
  }
  return resources;
}

void Reservations::Release(const std::string& job_uid) {
  if (until_.erase(job_uid) == 0) return;
  for (auto& [cluster, jobs] : shares_) jobs.erase(job_uid);
  std::erase_if(shares_, [](const auto& entry) { return entry.second.empty(); });
}

void Reservations::Forget(absl::Time now) {
  if (now < earliest_expiry_) return;
  std::vector<std::string> over;
  earliest_expiry_ = absl::InfiniteFuture();
  for (const auto& [uid, until] : until_) {
    if (until <= now) {
      over.push_back(uid);
    } else {
      earliest_expiry_ = std::min(earliest_expiry_, until);
    }
  }
  for (const std::string& uid : over) Release(uid);
}

}  // namespace fusionllm::op::placement
