// GreedyPacking: devices of a kind, which of these lie near each other, and where fills begin.
#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "lib/scheduler/greedy_packing.h"
#include "lib/scheduler/infinity.h"

namespace fusionllm::scheduler {
namespace {

constexpr size_t kNearGroups = 24;  // neighbours of a group that are weighed
constexpr size_t kStarts = 6;       // groups to begin with

}  // namespace

void GreedyPacking::MakeGroups() {
  const size_t devices = problem_.request().devices.size();
  group_of_.assign(devices, -1);
  slowness_of_.assign(devices, 0);
  pinned_.assign(devices, 0);
  pin_used_in_.assign(devices, 0);
  for (int p = 0; p < problem_.positions(); ++p) {
    if (problem_.PinnedDevice(p) >= 0) pinned_[problem_.PinnedDevice(p)] = 1;
  }
  std::vector<int> group_of_kind(problem_.links().kinds(), -1);
  for (int device : problem_.usable()) {
    slowness_of_[device] = std::max(form_.StageSeconds(0, problem_.positions(), device), 1e-12);
    int& group = group_of_kind[problem_.links().kind(device)];
    if (group < 0) {
      group = static_cast<int>(groups_.size());
      groups_.emplace_back();
    }
    group_of_[device] = group;
    groups_[group].devices.push_back(device);
  }
  for (Group& group : groups_) {
    std::stable_sort(group.devices.begin(), group.devices.end(), [&](int a, int b) { return slowness_of_[a] < slowness_of_[b]; });
    group.speed_sum.push_back(0);
    for (int device : group.devices) {
      group.slowness.push_back(slowness_of_[device]);
      group.speed_sum.push_back(group.speed_sum.back() + 1 / slowness_of_[device]);
    }
  }
  by_speed_.resize(groups_.size());
  std::iota(by_speed_.begin(), by_speed_.end(), 0);
  std::stable_sort(by_speed_.begin(), by_speed_.end(),
                   [&](int a, int b) { return groups_[a].speed_sum.back() > groups_[b].speed_sum.back(); });
  taken_.assign(groups_.size(), 0);
  taken_in_.assign(groups_.size(), 0);
}

double GreedyPacking::Distance(int from_device, int to_device) const {
  return form_.CrossingAt(typical_position_, from_device, to_device, kInfinity).seconds();
}

void GreedyPacking::FindNeighbours() {
  if (groups_.size() > DirectedLinks::kMaxTabulatedKinds) {
    NeighboursByRule();
    return;
  }
  std::vector<std::pair<double, int>> distances;  // ties: the fastest group first
  for (size_t g = 0; g < groups_.size(); ++g) {
    distances.clear();
    for (size_t rank = 0; rank < by_speed_.size(); ++rank) {
      const int other = by_speed_[rank];
      if (other == static_cast<int>(g)) continue;
      const double distance_s = Distance(groups_[g].devices[0], groups_[other].devices[0]);
      if (distance_s < kInfinity) distances.push_back({distance_s, static_cast<int>(rank)});
    }
    const size_t count = std::min(kNearGroups, distances.size());
    std::partial_sort(distances.begin(), distances.begin() + count, distances.end());
    for (size_t i = 0; i < count; ++i) groups_[g].near.push_back(by_speed_[distances[i].second]);
  }
}

// Too many groups to look at all pairs: those that the rules themselves name, and those of the same site.
void GreedyPacking::NeighboursByRule() {
  const PlanRequest& request = problem_.request();
  std::vector<std::set<std::pair<double, int>>> near(groups_.size());
  const auto add = [&](int src, int dst) {
    if (src < 0 || dst < 0 || group_of_[src] < 0 || group_of_[dst] < 0 || group_of_[src] == group_of_[dst]) return;
    const double distance_s = Distance(src, dst);
    if (distance_s == kInfinity) return;
    auto& of = near[group_of_[src]];
    of.insert({distance_s, group_of_[dst]});
    if (of.size() > kNearGroups) of.erase(std::prev(of.end()));
  };
  for (const Link& link : request.links) add(link.src, link.dst);
  std::map<absl::string_view, std::vector<int>> of_site;  // the fastest groups of each, by a device
  for (int group : by_speed_) {
    std::vector<int>& devices = of_site[request.devices[groups_[group].devices[0]].site];
    if (devices.size() < kNearGroups) devices.push_back(groups_[group].devices[0]);
  }
  for (const auto& [site, devices] : of_site) {
    for (int a : devices) {
      for (int b : devices) add(a, b);
    }
  }
  const auto device_of = [&](const LinkEnd& end) {
    if (end.device >= 0) return end.device;
    const auto found = of_site.find(request.sites[end.site]);
    return found == of_site.end() ? -1 : found->second[0];
  };
  for (const SiteLink& link : request.site_links) add(device_of(link.src), device_of(link.dst));
  for (size_t g = 0; g < groups_.size(); ++g) {
    for (const auto& [distance_s, other] : near[g]) groups_[g].near.push_back(other);
  }
}

// Where a pipeline may begin: the groups with most speed together, those with the fastest devices, and that of the first device declared.
std::vector<int> GreedyPacking::Starts() const {
  if (problem_.HasPins()) {
    for (int p = 0; p < problem_.first_cut(); ++p) {
      if (problem_.PinnedDevice(p) >= 0) return {group_of_[problem_.PinnedDevice(p)]};
    }
  }
  std::vector<int> starts;
  const auto add = [&](int group) {
    if (std::find(starts.begin(), starts.end(), group) == starts.end()) starts.push_back(group);
  };
  for (size_t i = 0; i < std::min(kStarts / 2, by_speed_.size()); ++i) add(by_speed_[i]);
  std::vector<int> by_device = by_speed_;
  const size_t count = std::min(kStarts / 2, by_device.size());
  std::partial_sort(by_device.begin(), by_device.begin() + count, by_device.end(),
                    [&](int a, int b) { return std::pair(groups_[a].slowness[0], a) < std::pair(groups_[b].slowness[0], b); });
  for (size_t i = 0; i < count; ++i) add(by_device[i]);
  add(group_of_[problem_.usable()[0]]);
  return starts;
}

// Of devices, the slowest first: everybody, and shares of the fastest.
std::vector<double> GreedyPacking::Thresholds() const {
  std::vector<double> slowness;
  for (int device : problem_.usable()) slowness.push_back(slowness_of_[device]);
  std::sort(slowness.begin(), slowness.end());
  std::vector<double> thresholds = {kInfinity};
  for (double share : {0.75, 0.5, 0.3, 0.15}) {
    const double threshold = slowness[static_cast<size_t>(share * static_cast<double>(slowness.size() - 1))];
    if (threshold < std::min(thresholds.back(), slowness.back())) thresholds.push_back(threshold);
  }
  return thresholds;
}

}  // namespace fusionllm::scheduler
