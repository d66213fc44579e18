#include "operator/placement/placement.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace fusionllm::op {
namespace {

struct Share {
  std::string cluster;
  int64_t least = 0;
  int64_t most = std::numeric_limits<int64_t>::max();
  int64_t count = 0;
};

int64_t Wanted(const job::Executors& executors) {
  const int64_t wanted = executors.replicas.value_or(executors.min);
  return std::clamp(wanted, executors.min, std::max(executors.min, executors.max.value_or(std::numeric_limits<int64_t>::max())));
}

std::vector<Share> SharesOf(const job::Placement& placement, const std::vector<std::string>& clusters) {
  std::vector<Share> shares;
  for (const std::string& cluster : clusters) {
    if (placement.clusters.empty()) {
      shares.push_back({.cluster = cluster});
      continue;
    }
    const auto named =
        std::find_if(placement.clusters.begin(), placement.clusters.end(), [&](const auto& each) { return each.name == cluster; });
    if (named == placement.clusters.end()) continue;
    shares.push_back({cluster, named->min, named->max.value_or(std::numeric_limits<int64_t>::max())});
  }
  return shares;
}

}  // namespace

Placement Place(const job::FusionJob& job, const std::vector<std::string>& clusters) {
  const job::Executors& executors = job.spec.executors;
  std::vector<Share> shares = SharesOf(job.spec.placement, clusters);
  for (const job::PlacementCluster& named : job.spec.placement.clusters) {
    if (named.min > 0 && std::find(clusters.begin(), clusters.end(), named.name) == clusters.end()) {
      return {.problem = absl::StrCat("spec.placement.clusters: ", named.name, " must have ", named.min,
                                      " executors, and there is no such cluster; there are: ", absl::StrJoin(clusters, ", "))};
    }
  }
  if (shares.empty()) return {.problem = "no cluster may be used"};
  int64_t total = 0;
  for (Share& share : shares) {
    share.count = share.least;
    total += share.least;
  }
  const int64_t wanted = Wanted(executors);
  if (total > wanted) {
    return {.problem =
                absl::StrCat("spec.placement.clusters: the minima add up to ", total, ", more than the ", wanted, " executors wanted")};
  }
  const auto add_one = [&] {
    const auto roomy = [](const Share& a, const Share& b) {
      const bool a_full = a.count >= a.most, b_full = b.count >= b.most;
      return a_full != b_full ? b_full : a.count < b.count;
    };
    const auto at = std::min_element(shares.begin(), shares.end(), roomy);
    if (at->count >= at->most) return false;
    ++at->count;
    return true;
  };
  for (; total < wanted; ++total) {
    if (!add_one()) {
      return {.problem =
                  absl::StrCat("spec.placement.clusters: the maxima add up to ", total, ", fewer than the ", wanted, " executors wanted")};
    }
  }
  Placement placement;
  for (const Share& share : shares) {
    for (int64_t i = 0; i < share.count; ++i) placement.slots.push_back({share.cluster, static_cast<int>(i), false});
  }
  for (int64_t i = 0; i < executors.spares; ++i) {
    Share& share = shares[static_cast<size_t>(i) % shares.size()];
    placement.slots.push_back({share.cluster, static_cast<int>(share.count++), true});
  }
  return placement;
}

}  // namespace fusionllm::op
