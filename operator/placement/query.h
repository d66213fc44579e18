// What the scheduler service is asked before a job is placed: the job, over devices that it might get. Pure functions.
//
// Each cluster stands for a site with one device for each executor that it could take, named as the executor would be. How fast they are is
// assumed (device_speed.h); the ways between clusters are those of FusionClusters, else what runs have measured, else the defaults below.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/job/fusion_job.h"
#include "operator/cache/member.h"
#include "operator/placement/placement.h"

namespace fusionllm::op::placement {

// Of all clusters together: a search over more takes longer than a job should wait.
inline constexpr int64_t kMaxQueryDevices = 64;
// Between clusters of which nothing is said: 100 Mbit/s. Inside of one: 10 Gbit/s.
inline constexpr cache::LinkEstimate kUnknownLink{.bytes_per_s = 12.5e6, .latency_s = 30e-3};
inline constexpr cache::LinkEstimate kIntraClusterLink{.bytes_per_s = 1.25e9, .latency_s = 100e-6};

struct PlacementQuery {
  std::string job_document, profiles_document;
};

// The cluster of a device of a query: "paris" of "paris-3".
std::string ClusterOf(const std::string& device);

// The way tensors of the job take between two clusters: what either says of it, as wide as both let through; by the hub where they meet at
// the broker.
cache::LinkEstimate LinkBetween(const std::string& from, const std::string& to, job::NetworkMode mode,
                                const std::vector<cache::ClusterFacts>& clusters);

// Whether executors of these two meet at the broker.
bool MeetAtRelay(const std::string& from, const std::string& to, job::NetworkMode mode, const std::vector<cache::ClusterFacts>& clusters);

// `attempt`: the first is 0; the strategy of a later one is fitted to what it could get (fitted_strategy.h). FailedPrecondition: why it
// cannot be asked.
absl::StatusOr<PlacementQuery> PlacementQueryOf(const job::FusionJob& job, int64_t attempt, const SearchSpace& space,
                                                const std::vector<cache::ClusterFacts>& clusters);

}  // namespace fusionllm::op::placement
