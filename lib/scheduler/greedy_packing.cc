#include "lib/scheduler/greedy_packing.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "lib/scheduler/bounds.h"
#include "lib/scheduler/infinity.h"

namespace fusionllm::scheduler {
namespace {

constexpr size_t kFastest = 8;   // groups anywhere that are weighed beside the near ones
constexpr double kCoarse = 1.3;  // steps of the cap: first,
constexpr double kFine = 1.04;   // and around the best
constexpr size_t kRefined = 4;   // fills swept in fine steps
constexpr int kWorseInARow = 5;  // after so many worse caps a sweep ends
constexpr double kWorse = 1.2;
constexpr size_t kMaxFound = 64;
constexpr double kNearTheBest = 1.25;
constexpr int kBisections = 24;
constexpr double kCloseCaps = 1.005;
constexpr double kEndless = 1e12;
constexpr double kShareOfMemory = 0.85;  // Fill::min_share where memory is what is short

}  // namespace

GreedyPacking::GreedyPacking(const Problem& problem) : problem_(problem), form_(problem), min_bottleneck_s_(MinBottleneckSeconds(problem)) {
  const int n = problem.positions();
  std::vector<std::pair<int64_t, int>> alive;
  for (int p = problem.first_cut(); p < n; ++p) alive.push_back({problem.LossyBytesAt(p) + problem.LosslessBytesAt(p), p});
  if (!alive.empty()) {
    std::nth_element(alive.begin(), alive.begin() + alive.size() / 2, alive.end());
    typical_position_ = alive[alive.size() / 2].second;
  }
  MakeGroups();
  FindNeighbours();
}

int GreedyPacking::Depth(const Fill& fill, int stage) const {
  const PlanRequest& request = problem_.request();
  const int least = request.schedule.MinInFlight(request.micro_batches);
  const int most = request.schedule.MaxInFlight(request.micro_batches, request.max_in_flight);
  return std::clamp(fill.expected_stages - stage, least, std::max(least, std::min(most, fill.deepest)));
}

bool GreedyPacking::FitsAtDepth(const Assignment& assignment) const {
  const int count = static_cast<int>(assignment.devices.size());
  const Fill full{.expected_stages = count, .deepest = kMaxMicroBatches};
  for (int s = 0; s < count; ++s) {
    const int end = s + 1 < count ? assignment.begins[s + 1] : problem_.positions(), device = assignment.devices[s];
    if (form_.NeededBytes(assignment.begins[s], end, device, Depth(full, s)) > problem_.UsableMemory(device)) return false;
  }
  return true;
}

// The first device of a group that this fill may still take, as an index; the number of devices when there is none.
int GreedyPacking::Unused(const Fill& fill, int group) {
  if (taken_in_[group] != fill_) {
    taken_in_[group] = fill_;
    taken_[group] = 0;
  }
  const Group& g = groups_[group];
  const int count = static_cast<int>(g.devices.size());
  int& taken = taken_[group];
  while (taken < count && pinned_[g.devices[taken]]) ++taken;
  return taken < count && g.slowness[taken] <= fill.slowest ? taken : count;
}

// Seconds for each part of the model that the group could do, the way there included.
double GreedyPacking::CostOfGroup(const Fill& fill, int group, int from_device, int position) {
  const Group& g = groups_[group];
  const int first = Unused(fill, group);
  if (first >= static_cast<int>(g.devices.size())) return kInfinity;
  ++work_;
  const double crossing_s = form_.CrossingAt(position, from_device, g.devices[first], fill.cap_s).seconds();
  if (crossing_s == kInfinity) return kInfinity;
  const int last = static_cast<int>(std::upper_bound(g.slowness.begin(), g.slowness.end(), fill.slowest) - g.slowness.begin());
  const double left = form_.StageSeconds(position, problem_.positions(), from_device) / slowness_of_[from_device];
  const double all = fill.cap_s * (g.speed_sum[last] - g.speed_sum[first]);
  const double done = std::max(std::min(left, all), 1e-12);
  const double devices = std::max(1.0, std::ceil((last - first) * std::min(1.0, left / all)));
  double inside_s = 0;
  if (devices > 1) inside_s = form_.CrossingAt(position, g.devices[first], g.devices[first + 1], fill.cap_s).seconds();
  if (inside_s == kInfinity) inside_s = crossing_s;
  const double busy_s = std::min(fill.cap_s, left * g.slowness[first]);
  return (crossing_s + devices * busy_s + (devices - 1) * inside_s) / done;
}

int GreedyPacking::NextGroup(const Fill& fill, int from_device, int position) {
  int best = -1;
  double best_cost = kInfinity;
  const auto weigh = [&](int group) {
    if (group == group_of_[from_device]) return;
    const double cost = CostOfGroup(fill, group, from_device, position);
    if (cost >= best_cost) return;
    best = group;
    best_cost = cost;
  };
  for (int group : groups_[group_of_[from_device]].near) weigh(group);
  const auto used_up = [&](int group) { return Unused(fill, group) >= static_cast<int>(groups_[group].devices.size()); };
  while (fastest_left_ < by_speed_.size() && used_up(by_speed_[fastest_left_])) ++fastest_left_;
  size_t seen = 0;
  for (size_t i = fastest_left_; i < by_speed_.size() && (seen < kFastest || best < 0); ++i, ++seen) weigh(by_speed_[i]);
  return best;
}

// Who comes after `device`, near `position`; -1: none. Takes it.
int GreedyPacking::NextDevice(const Fill& fill, int device, int position) {
  int group = group_of_[device];
  int next = Unused(fill, group);
  if (next >= static_cast<int>(groups_[group].devices.size()) || !problem_.Connected(device, groups_[group].devices[next])) {
    group = NextGroup(fill, device, position);
    if (group < 0) return -1;
    next = Unused(fill, group);
  }
  ++taken_[group];
  return groups_[group].devices[next];
}

// The end of the stage of a device that ops from `begin` on are pinned to: past the last of them, whatever the cap.
bool GreedyPacking::ForcedStage(const Fill& fill, int stage, int begin, int device, int& end) {
  const int n = problem_.positions(), depth = Depth(fill, stage);
  if (pin_used_in_[device] == fill_) return false;
  pin_used_in_[device] = fill_;
  int past = problem_.NextPinned(begin), last = n;
  for (int p = past; p < n; p = problem_.NextPinned(p + 1)) {
    if (problem_.PinnedDevice(p) != device) {
      last = p;
      break;
    }
    past = p + 1;
  }
  if (begin == 0) past = std::max(past, problem_.first_cut());
  end = std::max(past, form_.FurthestEnd(begin, last, device, fill.cap_s, depth));
  return form_.FurthestEnd(begin, end, device, kInfinity, depth) >= end;
}

bool GreedyPacking::Run(const Fill& fill, Assignment& assignment) {
  const int n = problem_.positions();
  assignment.begins.clear();
  assignment.devices.clear();
  ++fill_;
  fastest_left_ = 0;
  const auto pinned_at = [&](int begin) {  // the device that must run what stands there, or -1
    const int p = problem_.NextPinned(begin);
    return p < n && (p == begin || (begin == 0 && p < problem_.first_cut())) ? problem_.PinnedDevice(p) : -1;
  };
  int begin = 0, device = pinned_at(0);
  if (device < 0) {
    const int first = Unused(fill, fill.group);
    if (first >= static_cast<int>(groups_[fill.group].devices.size())) return false;
    device = groups_[fill.group].devices[first];
    ++taken_[fill.group];
  }
  for (;;) {
    ++work_;
    const int stage = static_cast<int>(assignment.devices.size());
    if (stage >= problem_.max_stages()) return false;
    const bool forced = pinned_at(begin) >= 0;
    int end = begin;
    if (forced) {
      if (!ForcedStage(fill, stage, begin, device, end)) return false;
    } else {
      end = form_.FurthestEnd(begin, problem_.NextPinned(begin), device, fill.cap_s, Depth(fill, stage));
    }
    const bool useless = end <= begin || (begin == 0 && end < problem_.first_cut());
    if (!useless && end >= n) {
      assignment.begins.push_back(begin);
      assignment.devices.push_back(device);
      return true;
    }
    const bool meets_pin = !useless && end < n && pinned_at(end) >= 0;
    const int next = meets_pin ? pinned_at(end) : NextDevice(fill, device, std::max(end, problem_.first_cut()));
    if (next < 0) return false;
    if (!useless) {
      const int cut = forced || meets_pin ? end : form_.BestCut(begin, end, device, next, fill.cap_s, fill.min_share);
      if (cut < 0) return false;
      assignment.begins.push_back(begin);
      assignment.devices.push_back(device);
      begin = cut;
    }
    device = next;
  }
}

bool GreedyPacking::Place(std::span<const int> devices, const Fill& fill, bool all, Assignment& assignment) {
  const int n = problem_.positions(), count = static_cast<int>(devices.size());
  assignment.begins.clear();
  assignment.devices.clear();
  int begin = 0;
  for (int i = 0; i < count; ++i) {
    ++work_;
    const int stage = static_cast<int>(assignment.devices.size()), device = devices[i];
    const int last = all ? n - (count - 1 - i) : n;
    const int end = form_.FurthestEnd(begin, last, device, fill.cap_s, Depth(fill, stage));
    if (end <= begin || (begin == 0 && end < problem_.first_cut())) {
      if (all) return false;
      continue;
    }
    const bool done = end == n;
    const int cut = done ? n : i + 1 < count ? form_.BestCut(begin, end, device, devices[i + 1], fill.cap_s, fill.min_share) : -1;
    if (cut < 0 || !problem_.Allowed(begin, cut, device)) return false;
    assignment.begins.push_back(begin);
    assignment.devices.push_back(device);
    if (done) return !all || i + 1 == count;
    begin = cut;
  }
  return false;
}

std::optional<EstimatedPlan> GreedyPacking::Recut(std::span<const int> devices) {
  const int count = static_cast<int>(devices.size());
  std::optional<EstimatedPlan> best;
  RecutAtDepth(devices, 1, best);
  ConsiderEqualParts(devices, best);
  // Where memory for a pipeline in full flow is short, stages that hold more of it must be shorter.
  for (int deepest = 2; best && deepest < 2 * std::min(count, problem_.request().micro_batches); deepest *= 2) {
    if (FitsAtDepth(best->assignment)) break;
    RecutAtDepth(devices, deepest, best);
  }
  return best;
}

// Cuts by a cap on the time of a stage may all be worse, where few ops are unequal and links slow.
void GreedyPacking::ConsiderEqualParts(std::span<const int> devices, std::optional<EstimatedPlan>& best) {
  const int count = static_cast<int>(devices.size()), first = problem_.first_cut() - 1, places = problem_.positions() - first;
  if (count > std::min(places, problem_.max_stages())) return;
  Assignment equal{.devices = {devices.begin(), devices.end()}};
  for (int s = 0; s < count; ++s) equal.begins.push_back(s == 0 ? 0 : first + places * s / count);
  for (int s = 0; s < count; ++s) {
    ++work_;
    if (!problem_.Allowed(equal.begins[s], s + 1 < count ? equal.begins[s + 1] : problem_.positions(), devices[s])) return;
  }
  const double estimate_s = form_.StepSeconds(equal);
  if (estimate_s < (best ? best->estimate_s : kInfinity)) best = EstimatedPlan{std::move(equal), estimate_s};
}

void GreedyPacking::RecutAtDepth(std::span<const int> devices, int deepest, std::optional<EstimatedPlan>& best) {
  const int count = static_cast<int>(devices.size());
  const bool all = count <= problem_.min_stages();
  Fill fill{.expected_stages = count, .deepest = deepest};
  if (deepest > 1) fill.min_share = kShareOfMemory;
  Assignment assignment;
  const auto place = [&](double cap_s) {
    fill.cap_s = cap_s;
    return Place(devices, fill, all, assignment);
  };
  double high_s = std::max(min_bottleneck_s_, 1e-12), low_s = high_s;
  while (!place(high_s)) {
    low_s = high_s;
    high_s *= 2;
    if (high_s > kEndless || problem_.Stopped()) return;
  }
  for (int i = 0; i < kBisections && high_s / low_s > kCloseCaps; ++i) {
    const double middle_s = std::sqrt(low_s * high_s);
    (place(middle_s) ? high_s : low_s) = middle_s;
  }
  int worse = 0;
  for (double cap_s = high_s; worse < kWorseInARow; cap_s *= kFine) {
    ++worse;
    if (!place(cap_s) || static_cast<int>(assignment.devices.size()) < problem_.min_stages()) continue;
    const double estimate_s = form_.StepSeconds(assignment);
    if (estimate_s >= (best ? best->estimate_s : kInfinity)) continue;
    best = EstimatedPlan{assignment, estimate_s};
    worse = 0;
  }
}

// As many devices as the job wants at least, each with a stage.
std::optional<EstimatedPlan> GreedyPacking::Spread(int group) {
  const int count = problem_.min_stages();
  Fill fill{.group = group, .cap_s = kInfinity};
  ++fill_;
  fastest_left_ = 0;
  const int first = Unused(fill, group);
  if (first >= static_cast<int>(groups_[group].devices.size())) return std::nullopt;
  std::vector<int> devices = {groups_[group].devices[first]};
  ++taken_[group];
  while (static_cast<int>(devices.size()) < count) {
    fill.cap_s = slowness_of_[devices.back()] / count;
    int next = NextDevice(fill, devices.back(), typical_position_);
    if (next < 0) {  // no codec gets the cut below so low a cap
      fill.cap_s = kInfinity;
      next = NextDevice(fill, devices.back(), typical_position_);
    }
    if (next < 0) return std::nullopt;
    devices.push_back(next);
  }
  return Recut(devices);
}

double GreedyPacking::Keep(Assignment assignment, const Fill& fill) {
  const double estimate_s = form_.StepSeconds(assignment);
  if (estimate_s == kInfinity || static_cast<int>(assignment.devices.size()) < problem_.min_stages()) return estimate_s;
  found_.push_back({{std::move(assignment), estimate_s}, fill});
  if (found_.size() > 2 * kMaxFound) SortFound(kMaxFound);
  return estimate_s;
}

// Best first, none twice; near the best, those with a number of stages of their own go first.
void GreedyPacking::SortFound(size_t limit) {
  std::stable_sort(found_.begin(), found_.end(), [](const Found& a, const Found& b) { return a.plan.estimate_s < b.plan.estimate_s; });
  std::vector<Found> own, others;
  std::set<size_t> counts;
  for (Found& found : found_) {
    std::vector<Found>& list =
        found.plan.estimate_s <= kNearTheBest * found_[0].plan.estimate_s && counts.insert(found.plan.assignment.devices.size()).second
            ? own
            : others;
    const bool known = std::any_of(own.begin(), own.end(), [&](const Found& f) { return f.plan.assignment == found.plan.assignment; }) ||
                       (!others.empty() && others.back().plan.assignment == found.plan.assignment);
    if (!known) list.push_back(found);
  }
  own.insert(own.end(), std::make_move_iterator(others.begin()), std::make_move_iterator(others.end()));
  if (own.size() > limit) own.resize(limit);
  found_ = std::move(own);
}

// The best estimate of what the fill gives; infinite when it does not reach the end of the model.
double GreedyPacking::Try(const Fill& fill) {
  Assignment assignment;
  if (!Run(fill, assignment)) return kInfinity;
  bool fits = FitsAtDepth(assignment);
  // With memory for one micro-batch in flight stages are few and wait for each other; one in full flow has many. The best may lie between.
  Fill deeper = fill;
  deeper.expected_stages = static_cast<int>(assignment.devices.size());
  deeper.min_share = kShareOfMemory;
  double best_s = Keep(std::move(assignment), fill);
  while (!fits && deeper.deepest < problem_.request().micro_batches) {
    deeper.deepest += std::max(1, deeper.deepest / 2);
    Assignment deep;
    if (!Run(deeper, deep)) break;
    deeper.expected_stages = static_cast<int>(deep.devices.size());
    fits = FitsAtDepth(deep);
    best_s = std::min(best_s, Keep(std::move(deep), deeper));
  }
  return best_s;
}

void GreedyPacking::Sweep(Fill fill, double from_s, double to_s, double ratio) {
  int worse = 0;
  double best_s = kInfinity;
  for (fill.cap_s = from_s; fill.cap_s >= to_s && worse < kWorseInARow && work_ < max_work_; fill.cap_s /= ratio) {
    if (problem_.Stopped()) return;
    const double estimate_s = Try(fill);
    worse = estimate_s == kInfinity || estimate_s > kWorse * best_s ? worse + 1 : 0;
    best_s = std::min(best_s, estimate_s);
  }
}

std::vector<EstimatedPlan> GreedyPacking::Plans(size_t limit, int64_t max_work) {
  max_work_ = work_ + max_work;
  found_.clear();
  const std::vector<int> starts = Starts();
  const double slowest = *std::max_element(slowness_of_.begin(), slowness_of_.end());
  for (int start : starts) {
    for (double threshold : Thresholds()) Sweep({.group = start, .slowest = threshold}, slowest, min_bottleneck_s_, kCoarse);
  }
  SortFound(kMaxFound);
  const size_t refined = std::min(kRefined, found_.size());
  for (size_t i = 0; i < refined; ++i) {
    Fill fill = found_[i].fill;
    fill.expected_stages = fill.deepest = 1;
    fill.min_share = Fill{}.min_share;
    Sweep(fill, fill.cap_s * kCoarse, fill.cap_s / kCoarse, kFine);
  }
  SortFound(kMaxFound);
  if (problem_.min_stages() > 1 && !problem_.HasPins()) {
    for (int start : starts) {
      if (auto spread = Spread(start)) found_.push_back({*std::move(spread), {.group = start}});
    }
  }
  SortFound(limit);
  std::vector<EstimatedPlan> plans;
  for (Found& found : found_) plans.push_back(std::move(found.plan));
  return plans;
}

}  // namespace fusionllm::scheduler
