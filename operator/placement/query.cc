#include "operator/placement/query.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/job/parse.h"
#include "lib/wire/profile_json.h"
#include "operator/manifests/run_objects.h"
#include "operator/placement/device_speed.h"
#include "operator/placement/fitted_strategy.h"

namespace fusionllm::op::placement {
namespace {

const cache::ClusterFacts* Find(const std::string& name, const std::vector<cache::ClusterFacts>& clusters) {
  const auto at = std::find_if(clusters.begin(), clusters.end(), [&](const auto& facts) { return facts.name == name; });
  return at == clusters.end() ? nullptr : &*at;
}

cache::LinkEstimate Said(const cache::ClusterFacts* from, const std::string& to) {
  if (from == nullptr) return {};
  const auto at = from->links.find(to);
  return at == from->links.end() ? cache::LinkEstimate() : at->second;
}

cache::LinkEstimate Measured(const cache::ClusterFacts* from, const std::string& to) {
  if (from == nullptr) return {};
  const auto at = from->measured.find(to);
  return at == from->measured.end() ? cache::LinkEstimate() : at->second;
}

// What somebody has stated goes before what runs have measured, each figure by itself; what is known of one direction stands for the other.
cache::LinkEstimate Direct(const std::string& from, const std::string& to, const std::vector<cache::ClusterFacts>& clusters) {
  const cache::ClusterFacts *const source = Find(from, clusters), *const target = Find(to, clusters);
  const cache::LinkEstimate there = Said(source, to), back = Said(target, from);
  const cache::LinkEstimate seen_there = Measured(source, to), seen_back = Measured(target, from);
  cache::LinkEstimate way;
  for (const cache::LinkEstimate& known : {there, back, seen_there, seen_back, kUnknownLink}) {
    if (way.bytes_per_s <= 0) way.bytes_per_s = known.bytes_per_s;
    if (way.latency_s <= 0) way.latency_s = known.latency_s;
  }
  if (source != nullptr && source->egress_bytes_per_s > 0) way.bytes_per_s = std::min(way.bytes_per_s, source->egress_bytes_per_s);
  if (target != nullptr && target->ingress_bytes_per_s > 0) way.bytes_per_s = std::min(way.bytes_per_s, target->ingress_bytes_per_s);
  return way;
}

// How many executors each cluster could take, in turn where they are too many for one query.
std::vector<int64_t> Counts(const SearchSpace& space) {
  std::vector<int64_t> counts(space.clusters.size(), 0);
  int64_t all = 0;
  for (bool more = true; more && all < kMaxQueryDevices;) {
    more = false;
    for (size_t i = 0; i < counts.size() && all < kMaxQueryDevices; ++i) {
      if (counts[i] >= space.clusters[i].max_count) continue;
      ++counts[i];
      ++all;
      more = true;
    }
  }
  return counts;
}

// Those of the cluster, the slowest first: which of its nodes they get is for the cluster to say.
absl::StatusOr<std::vector<wire::DeviceProfile>> DevicesIn(const ClusterCandidate& candidate, int64_t count, job::Precision precision) {
  std::vector<std::pair<wire::DeviceProfile, int64_t>> kinds;
  absl::Status unknown = absl::FailedPreconditionError("it does not tell what accelerators its nodes have");
  for (const auto& [product, room] : candidate.products) {
    absl::StatusOr<wire::DeviceProfile> profile = AssumedProfile(product, candidate.each, precision);
    // A device that has no room now need not be known.
    if (!profile.ok() && room > 0) return profile.status();
    if (profile.ok())
      kinds.push_back({*std::move(profile), room});
    else
      unknown = profile.status();
  }
  if (kinds.empty()) return unknown;
  const auto slowness = [](const auto& kind) { return kind.first.rates.at("matmul").seconds_per_flop; };
  std::stable_sort(kinds.begin(), kinds.end(), [&](const auto& a, const auto& b) { return slowness(a) > slowness(b); });
  std::vector<wire::DeviceProfile> devices;
  for (const auto& [profile, room] : kinds) {
    for (int64_t i = 0; i < room && std::ssize(devices) < count; ++i) devices.push_back(profile);
  }
  devices.resize(static_cast<size_t>(count), kinds.front().first);  // made when pods wait for them
  for (size_t i = 0; i < devices.size(); ++i) {
    devices[i].name = manifests::DeviceName({candidate.name, static_cast<int>(i), false});
    devices[i].site = candidate.name;
  }
  return devices;
}

wire::MeasuredLink LinkOf(const std::string& src, const std::string& dst, const cache::LinkEstimate& way) {
  return {.src = src,
          .dst = dst,
          .rtt_seconds = 2 * way.latency_s,
          .bandwidth_bytes_per_second = way.bytes_per_s,
          .latency_seconds = way.latency_s};
}

// The job as it is planned for these devices: all of them train, and constraints about others say nothing. An attempt that is not the first
// would have its strategy fitted to what it gets, and is asked about so: else a query is refused where the attempt is not.
std::string DocumentFor(job::FusionJob job, int64_t wanted, const std::vector<wire::DeviceProfile>& devices,
                        const std::vector<manifests::ExecutorSlot>& slots, int64_t attempt) {
  std::set<std::string> names;
  for (const wire::DeviceProfile& device : devices) names.insert(device.name);
  job.spec.executors.replicas = wanted;
  job.spec.executors.max.reset();
  job.spec.executors.min = std::min<int64_t>(job.spec.executors.min, std::min<int64_t>(wanted, std::ssize(devices)));
  job.spec.executors.spares = 0;
  job.spec.executors.pod_template.json.clear();
  std::erase_if(job.spec.strategy.pins, [&](const job::Pin& pin) { return !names.contains(pin.device); });
  std::erase_if(job.spec.strategy.exclude, [&](const std::string& device) { return !names.contains(device); });
  if (attempt > 0) {
    FitStrategy(job.spec.strategy, slots);
    if (job.spec.strategy.replicas > 1 && job.spec.strategy.MinExecutors() > wanted) job.spec.strategy.replicas = 0;
    job.spec.strategy.stages = std::min(job.spec.strategy.stages, wanted);
  }
  return manifests::JobDocument(job);
}

}  // namespace

std::string ClusterOf(const std::string& device) { return device.substr(0, device.rfind('-')); }

bool MeetAtRelay(const std::string& from, const std::string& to, job::NetworkMode mode, const std::vector<cache::ClusterFacts>& clusters) {
  const auto closed = [&](const std::string& name) {
    const cache::ClusterFacts* const facts = Find(name, clusters);
    return facts != nullptr && facts->egress_only;
  };
  return mode == job::NetworkMode::kRelay || mode == job::NetworkMode::kAuto || closed(from) || closed(to);
}

cache::LinkEstimate LinkBetween(const std::string& from, const std::string& to, job::NetworkMode mode,
                                const std::vector<cache::ClusterFacts>& clusters) {
  const auto hub = std::find_if(clusters.begin(), clusters.end(), [](const auto& facts) { return facts.local; });
  const std::string meeting = hub == clusters.end() ? "" : hub->name;
  if (!MeetAtRelay(from, to, mode, clusters) || from == meeting || to == meeting) return Direct(from, to, clusters);
  const cache::LinkEstimate in = Direct(from, meeting, clusters), out = Direct(meeting, to, clusters);
  return {.bytes_per_s = std::min(in.bytes_per_s, out.bytes_per_s), .latency_s = in.latency_s + out.latency_s};
}

absl::StatusOr<PlacementQuery> PlacementQueryOf(const job::FusionJob& job, int64_t attempt, const SearchSpace& space,
                                                const std::vector<cache::ClusterFacts>& clusters) {
  if (const auto& graph = job.spec.model.graph; graph.has_value() && graph->file.has_value()) {
    return absl::FailedPreconditionError("spec.model.graph.file is in a volume that the operator's scheduler cannot read");
  }
  const std::vector<int64_t> counts = Counts(space);
  wire::ProfilesDocument profiles;
  std::vector<std::string> sites;  // that have devices
  std::vector<manifests::ExecutorSlot> slots;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0) continue;
    const ClusterCandidate& candidate = *space.clusters[i].candidate;
    absl::StatusOr<std::vector<wire::DeviceProfile>> devices = DevicesIn(candidate, counts[i], job.spec.training.precision);
    if (!devices.ok()) return absl::FailedPreconditionError(absl::StrCat(candidate.name, ": ", std::string(devices.status().message())));
    std::move(devices->begin(), devices->end(), std::back_inserter(profiles.devices));
    sites.push_back(candidate.name);
    for (int64_t k = 0; k < counts[i]; ++k) slots.push_back({candidate.name, static_cast<int>(k)});
    if (counts[i] > 1)
      profiles.links.push_back(
          LinkOf(manifests::DeviceName({candidate.name, 0, false}), manifests::DeviceName({candidate.name, 1, false}), kIntraClusterLink));
  }
  for (const std::string& from : sites) {
    for (const std::string& to : sites) {
      if (from == to) continue;
      const cache::LinkEstimate way = LinkBetween(from, to, job.spec.network.mode, clusters);
      profiles.links.push_back(LinkOf(manifests::DeviceName({from, 0, false}), manifests::DeviceName({to, 0, false}), way));
    }
  }
  return PlacementQuery{.job_document = DocumentFor(job, space.wanted, profiles.devices, slots, attempt),
                        .profiles_document = wire::PrintProfiles(profiles)};
}

}  // namespace fusionllm::op::placement
