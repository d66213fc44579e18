// Capacity that has been given to executors and brokers which are not there yet, so that two jobs that are placed at the same time do not
// both count on it.
//
// Kept in memory alone: after a restart of the operator the clusters themselves say what has been taken, but for what was under way, and a
// pod that finds its place taken waits. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "lib/kube/api/resource_list.h"
#include "operator/cache/capacity.h"
#include "operator/manifests/identity.h"

namespace fusionllm::op::placement {

class Reservations {
 public:
  // Pods that have not come by then are not waited for.
  static constexpr absl::Duration kReservationTtl = absl::Minutes(2);

  // In place of what the job held before.
  void Reserve(const std::string& job_uid, const std::vector<manifests::ExecutorSlot>& slots, const kube::ResourceList& each,
               absl::Time now);
  // Beside what the job holds, in the cluster that has its broker, however it is called there; the broker's pod is the first to come. Once
  // after each Reserve().
  void ReserveBroker(const std::string& job_uid, const std::string& cluster, const kube::ResourceList& requests);
  // What others than `job_uid` hold in a cluster beyond their pods that are there; `pods_of_job`: how many each job has there.
  std::vector<cache::SharedResourceList> ReservedByOthers(const std::string& cluster, const std::string& job_uid,
                                                          const absl::flat_hash_map<std::string, int64_t>& pods_of_job, absl::Time now);
  // All that the job holds.
  void Release(const std::string& job_uid);
  // What is not waited for any more.
  void Forget(absl::Time now);
  size_t size() const { return until_.size(); }  // jobs

 private:
  // Of one job in one cluster.
  struct Share {
    cache::SharedResourceList broker;  // null: it is not there
    cache::SharedResourceList each;    // of `executors`
    int64_t executors = 0;
  };

  std::map<std::string, absl::btree_map<std::string, Share>> shares_;  // by cluster, then by job uid
  std::map<std::string, absl::Time> until_;                            // by job uid
  absl::Time earliest_expiry_ = absl::InfiniteFuture();                // or before it, of a job that has been released
};

}  // namespace fusionllm::op::placement
