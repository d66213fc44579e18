#include "lib/scheduler/completion_bound.h"

#include <algorithm>
#include <bit>

#include "lib/scheduler/infinity.h"

namespace fusionllm::scheduler {
namespace {

constexpr size_t kMaxDeviceSets = 16;

std::vector<int> ResourcesOf(const Problem& problem, int src, int dst) {
  std::vector<int> resources;
  problem.links().ForEachResource(src, dst, problem.link(src, dst), [&](int resource) { resources.push_back(resource); });
  return resources;
}

bool SameWay(const Problem& problem, int a, int b, int c, int d) {
  const DirectedLink one = problem.link(a, b), other = problem.link(c, d);
  if (one.bytes_per_s <= 0 || other.bytes_per_s <= 0) return one.bytes_per_s == other.bytes_per_s;
  return one.latency_s == other.latency_s && one.own_bytes_per_s == other.own_bytes_per_s &&
         ResourcesOf(problem, a, b) == ResourcesOf(problem, c, d);
}

bool Interchangeable(const Problem& problem, int a, int b) {
  const Device &one = problem.request().devices[a], &other = problem.request().devices[b];
  if (one.cost_class != other.cost_class || one.time_scale != other.time_scale) return false;
  if (problem.UsableMemory(a) != problem.UsableMemory(b) || !SameWay(problem, a, b, b, a)) return false;
  for (int p = 0; problem.HasPins() && p < problem.positions(); ++p) {
    if (problem.PinnedDevice(p) == a || problem.PinnedDevice(p) == b) return false;
  }
  return std::all_of(problem.usable().begin(), problem.usable().end(),
                     [&](int c) { return c == a || c == b || (SameWay(problem, a, c, b, c) && SameWay(problem, c, a, c, b)); });
}

}  // namespace

CompletionBound::CompletionBound(const Problem& problem, double max_s)
    : problem_(problem),
      max_s_(max_s),
      micro_batches_(problem.request().micro_batches),
      sets_(problem.usable().size() <= kMaxDeviceSets),
      adjacent_(problem.positions() + 1),
      buffers_(problem.positions() + 1) {
  for (const ChainValue& value : problem.values()) {
    const int cut = value.producer + 1;
    if (std::binary_search(value.consumers.begin(), value.consumers.end(), cut)) adjacent_[cut].Add(value);
  }
  // One message on its way and one waiting, each direction, at both ends.
  for (size_t cut = 0; cut < buffers_.size(); ++cut) {
    const Traffic& traffic = adjacent_[cut];
    buffers_[cut] = 2 * static_cast<int64_t>(MinBytes(traffic.lossy + traffic.gradient, traffic.lossless));
  }
  FindSymmetricDevices();
}

void CompletionBound::FindSymmetricDevices() {
  const std::vector<int>& usable = problem_.usable();
  symmetric_before_.assign(usable.size(), -1);
  for (size_t b = 1; b < usable.size(); ++b) {
    for (size_t a = b; a-- > 0 && symmetric_before_[b] < 0;) {
      if (Interchangeable(problem_, usable[a], usable[b])) symmetric_before_[b] = static_cast<int>(a);
    }
  }
}

CompletionBound::Segment CompletionBound::SegmentOf(int begin, int end, int device) const {
  Segment segment{.forward_s = problem_.ForwardSeconds(begin, end, device), .backward_s = problem_.BackwardSeconds(begin, end, device)};
  if (!(segment.both_s() * micro_batches_ <= max_s_) || !problem_.Allowed(begin, end, device)) return segment;
  const PlanRequest& request = problem_.request();
  const int64_t room = problem_.UsableMemory(device) - problem_.StaticBytes(begin, end) - problem_.ScratchBound(begin, end) -
                       buffers_[begin] - buffers_[end];
  const int64_t stash = problem_.StashBound(begin, end);
  int64_t held = request.schedule.MaxInFlight(request.micro_batches, request.max_in_flight);
  if (room < 0) return segment;
  if (stash > 0) held = std::min(held, room / stash);
  segment.fits = held >= request.schedule.MinInFlight(request.micro_batches);
  if (segment.fits) segment.rounds = (request.micro_batches - 1) / held + 1;
  return segment;
}

void CompletionBound::Traffic::Add(const ChainValue& value) {
  (value.differentiable && !value.lossless_only ? lossy : lossless) += value.wire_bytes;
  if (value.differentiable) gradient += value.bytes;
}

CompletionBound::Crossing CompletionBound::CrossingOf(const Traffic& traffic, int from, int to) const {
  Crossing crossing;
  if (traffic.lossy + traffic.lossless == 0) return crossing;
  const auto add = [&](const DirectedLink& link, double bytes) {
    if (link.bytes_per_s <= 0) {
      crossing.possible = false;
      return;
    }
    crossing.both_s += bytes / link.bytes_per_s + link.latency_s;
    crossing.slowest_s = std::max(crossing.slowest_s, bytes / link.bytes_per_s);
  };
  add(problem_.link(from, to), MinBytes(traffic.lossy, traffic.lossless));
  // Gradients of what only a lossless codec may touch are squeezed as the policy likes.
  if (traffic.gradient > 0) add(problem_.link(to, from), MinBytes(traffic.gradient, 0));
  crossing.chained = traffic.gradient > 0;
  return crossing;
}

double CompletionBound::Repeats(const Segment& segment) const {
  const bool both = problem_.request().schedule.forwards_first();
  return (micro_batches_ - 1) * (both ? segment.both_s() : std::max(segment.forward_s, segment.backward_s));
}

CompletionBound::Completion CompletionBound::After(int cut, uint32_t used, int last) {
  if (cut == problem_.positions()) return {};
  if (work_ >= max_work_) return {};
  const uint64_t set = sets_ ? used : 0;
  const uint64_t key = (set * problem_.usable().size() + last) * (problem_.positions() + 1) + cut;
  if (const auto found = known_.find(key); found != known_.end()) return found->second;
  const Completion rest = Search(cut, used, last);
  if (work_ < max_work_) known_.emplace(key, rest);
  return rest;
}

CompletionBound::Completion CompletionBound::Search(int cut, uint32_t used, int last) {
  if (problem_.Stopped()) max_work_ = work_;
  const std::vector<int>& usable = problem_.usable();
  const int devices = static_cast<int>(usable.size());
  const int stages = std::popcount(used) + 1;  // with the next one
  Completion best{kInfinity, kInfinity};
  for (int d = 0; d < devices; ++d) {
    if (d == last || (sets_ && ((used >> d & 1) != 0 || IsSymmetric(d, used)))) continue;
    const Crossing crossing = CrossingOf(adjacent_[cut], usable[last], usable[d]);
    if (!crossing.possible) continue;
    for (int end = cut + 1; end <= problem_.positions(); ++end) {
      ++work_;
      const Segment segment = SegmentOf(cut, end, usable[d]);
      if (segment.both_s() * micro_batches_ > max_s_) break;
      if (!segment.fits) continue;
      if (work_ >= max_work_) return {};
      const bool whole = end == problem_.positions();
      if (sets_ && (whole ? stages < problem_.min_stages() : stages >= problem_.max_stages())) continue;
      const Completion rest = whole ? Completion{} : After(end, sets_ ? used | 1u << d : 0, d);
      if (rest.step_s > max_s_) continue;
      const bool goes_on = whole || Chained(end);  // else what follows adds nothing to this stage's way
      const double behind_s = goes_on ? rest.fill_s : 0;
      const double way_s = segment.both_s() + behind_s;
      double step_s = std::max({segment.both_s() * micro_batches_, way_s + Repeats(segment), way_s * static_cast<double>(segment.rounds),
                                rest.step_s + (goes_on ? segment.both_s() : 0)});
      double fill_s = way_s;
      if (crossing.chained) {
        step_s = std::max(step_s + crossing.both_s, way_s + crossing.both_s + (micro_batches_ - 1) * crossing.slowest_s);
        fill_s += crossing.both_s;
      }
      best.fill_s = std::min(best.fill_s, fill_s);
      best.step_s = std::min(best.step_s, step_s);
    }
  }
  return best;
}

}  // namespace fusionllm::scheduler
