// The ways between clusters as runs have found them, so that the next job is placed by them.
//
// Brokers tell what their links carry on their progress pages. Kept is the last of each pair of clusters, in memory: an operator that
// starts learns it again from the runs there are. What a broker tells is not trusted further than this: figures out of all proportion are
// left out, a job speaks of clusters that it has executors in alone, and what a FusionCluster states goes before it (query.h).
// Thread-safe.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lib/base/mutex.h"
#include "lib/job/fusion_job.h"
#include "operator/cache/member.h"

namespace fusionllm::op::placement {

class MeasuredLinks {
 public:
  // Networks change.
  static constexpr absl::Duration kMaxAge = absl::Hours(24);
  // What differs by less from what is kept is the same: a query to the scheduler is put again when what it says changes.
  static constexpr double kTolerance = 0.25;
  static constexpr size_t kMaxPairs = 4096;

  // `page`: of the job's broker (ParseProgress). `used`: clusters that the job has executors in. Nothing is learned of links whose ends
  // meet at the relay: that is not the way between the two.
  void Learn(absl::string_view page, const job::FusionJob& job, const std::vector<std::string>& used,
             const std::vector<cache::ClusterFacts>& clusters, absl::Time now);
  // Fills in `measured` of each.
  void AddTo(std::vector<cache::ClusterFacts>& clusters, absl::Time now) const;

 private:
  struct Known {
    cache::LinkEstimate way;
    absl::Time at;
  };
  mutable base::Mutex mutex_;
  std::map<std::pair<std::string, std::string>, Known> known_ ABSL_GUARDED_BY(mutex_);  // by source and destination
};

}  // namespace fusionllm::op::placement
