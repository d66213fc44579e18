#include "lib/scheduler/chain_search.h"

#include <algorithm>
#include <cmath>

#include "lib/scheduler/bounds.h"
#include "lib/scheduler/infinity.h"
#include "lib/scheduler/pipeline_model.h"

namespace fusionllm::scheduler {
namespace {

constexpr double kCapStep = 1.04;
constexpr double kSlack = 1 + 1e-9;
constexpr int64_t kDevicesOfAStep = 4;  // that a device may follow, as a step of the work; whatever their kinds, lest these change a plan

// Of each run of positions with an equal share of work, the one with the least alive; pinned borders always.
std::vector<int> ChooseGrid(const Problem& problem, int limit) {
  const int n = problem.positions();
  std::vector<int> grid = {0};
  const int cuts = n - problem.first_cut();
  if (cuts <= limit) {
    for (int p = problem.first_cut(); p < n; ++p) grid.push_back(p);
  } else {
    const double total = problem.Flops(0, n) + n;  // + n: ops without FLOPs still count for something
    const auto work_before = [&](int p) { return (problem.Flops(0, p) + p) / total; };
    const auto alive = [&](int p) { return problem.LossyBytesAt(p) + problem.LosslessBytesAt(p); };
    for (int begin = problem.first_cut(); begin < n;) {
      int best = begin, end = begin;
      const int bucket = static_cast<int>(work_before(begin) * limit);
      for (; end < n && static_cast<int>(work_before(end) * limit) == bucket; ++end) {
        if (alive(end) < alive(best)) best = end;
      }
      grid.push_back(best);
      begin = std::max(end, begin + 1);
    }
    for (int p = problem.first_cut(); p < n; ++p) {
      if (problem.PinnedDevice(p) != problem.PinnedDevice(p - 1)) grid.push_back(p);
    }
    std::sort(grid.begin(), grid.end());
    grid.erase(std::unique(grid.begin(), grid.end()), grid.end());
  }
  grid.push_back(n);
  return grid;
}

}  // namespace

ChainSearch::ChainSearch(const Problem& problem, int grid)
    : problem_(problem), grid_(ChooseGrid(problem, grid)), min_bottleneck_s_(MinBottleneckSeconds(problem)) {
  FillMemoryTables();
}

// What a value adds to segments [begin, end), as differences over `end`; with sign -1 takes it away. But for what is made again inside
// blocks.
void ChainSearch::AddDifferences(const ChainValue& value, int begin, int64_t sign) {
  const bool recompute = problem_.request().recompute;
  const auto add = [&](std::vector<int64_t>& row, int end, int64_t bytes) { row[end] += sign * bytes; };
  if (!recompute || value.kept_between_blocks || value.producer < grid_[begin]) {
    const std::vector<int>& readers = recompute ? value.read_again_by : value.kept_by;
    const auto reader = std::lower_bound(readers.begin(), readers.end(), grid_[begin]);
    if (reader != readers.end()) add(stash_row_, grid_after_[*reader], value.bytes);
  }
  const int64_t buffers = 2 * (value.differentiable ? 2 : 1) * value.bytes;
  if (value.producer < grid_[begin]) {
    const auto reader = std::lower_bound(value.consumers.begin(), value.consumers.end(), grid_[begin]);
    if (reader == value.consumers.end()) return;
    add(fixed_row_, grid_after_[*reader], buffers);
    return;
  }
  add(fixed_row_, grid_after_[value.producer], buffers);
  add(fixed_row_, grid_after_[value.last_consumer], -buffers);  // from there on it is not cut
}

// What the largest block of each segment makes again inside.
void ChainSearch::AddLargestBlocks() {
  const int n = problem_.positions(), points = static_cast<int>(grid_.size());
  std::vector<int64_t> kept_from(n, 0);  // by first keeper, of what the segment makes
  std::vector<const ChainValue*> by_producer;
  for (const ChainValue& value : problem_.values()) {
    if (value.kept_between_blocks || value.kept_by.empty()) continue;
    kept_from[value.kept_by.front()] += value.bytes;
    by_producer.push_back(&value);
  }
  std::stable_sort(by_producer.begin(), by_producer.end(),
                   [](const ChainValue* a, const ChainValue* b) { return a->producer < b->producer; });
  std::vector<int64_t> in_block(problem_.blocks());
  size_t before = 0;
  for (int begin = 0; begin + 1 < points; ++begin) {
    for (; before < by_producer.size() && by_producer[before]->producer < grid_[begin]; ++before) {
      kept_from[by_producer[before]->kept_by.front()] -= by_producer[before]->bytes;
    }
    std::fill(in_block.begin(), in_block.end(), 0);
    int64_t largest = 0;
    int end = begin;
    for (int p = grid_[begin]; p < n; ++p) {
      int64_t& bytes = in_block[problem_.request().ops[problem_.op_at(p)].block];
      largest = std::max(largest, bytes += kept_from[p]);
      if (grid_[end + 1] == p + 1) fixed_bytes_[Pair(begin, ++end)] += largest;
    }
  }
}

// From one begin to the next only those values count otherwise that are made, read or kept between the two.
void ChainSearch::FillMemoryTables() {
  grid_after_.resize(problem_.positions());
  for (int p = 0, g = 0; p < problem_.positions(); ++p) {
    while (grid_[g] <= p) ++g;
    grid_after_[p] = g;
  }
  const int points = static_cast<int>(grid_.size());
  std::vector<std::vector<int>> changing(points);  // by the grid point before which something happens to a value
  for (size_t v = 0; v < problem_.values().size(); ++v) {
    const ChainValue& value = problem_.values()[v];
    const auto happens = [&](int position) {
      std::vector<int>& at = changing[grid_after_[position]];
      if (at.empty() || at.back() != static_cast<int>(v)) at.push_back(static_cast<int>(v));
    };
    happens(value.producer);
    for (int consumer : value.consumers) happens(consumer);
    for (int keeper : value.kept_by) happens(keeper);
  }
  fixed_bytes_.assign(grid_.size() * grid_.size(), 0);
  stash_bytes_.assign(grid_.size() * grid_.size(), 0);
  static_bytes_.assign(grid_.size() * grid_.size(), 0);
  fixed_row_.assign(points, 0);
  stash_row_.assign(points, 0);
  for (const ChainValue& value : problem_.values()) AddDifferences(value, 0, 1);
  for (int begin = 0; begin + 1 < points; ++begin) {
    for (int v : changing[begin]) {
      AddDifferences(problem_.values()[v], begin - 1, -1);
      AddDifferences(problem_.values()[v], begin, 1);
    }
    for (int end = begin + 1; end < points; ++end) {
      fixed_bytes_[Pair(begin, end)] = fixed_bytes_[Pair(begin, end - 1)] + fixed_row_[end];
      stash_bytes_[Pair(begin, end)] = stash_bytes_[Pair(begin, end - 1)] + stash_row_[end];
    }
    for (int end = begin + 1; end < points; ++end) {
      static_bytes_[Pair(begin, end)] = problem_.StaticBytes(grid_[begin], grid_[end]);
      fixed_bytes_[Pair(begin, end)] += static_bytes_[Pair(begin, end)] + problem_.WorkspaceBytes(grid_[begin], grid_[end]);
    }
  }
  if (problem_.request().recompute) AddLargestBlocks();
}

int64_t ChainSearch::NeededBytes(int begin, int end, int device) const {
  const PlanRequest& request = problem_.request();
  int in_flight = request.schedule.MinInFlight(request.micro_batches);
  if (depth_ == Depth::kTextbook) {
    const int most = request.schedule.MaxInFlight(request.micro_batches, request.max_in_flight);
    in_flight = std::clamp(static_cast<int>(order_.size()) - device, in_flight, most);
  }
  return fixed_bytes_[Pair(begin, end)] + in_flight * stash_bytes_[Pair(begin, end)];
}

// Both ways; infinite when one direction cannot be squeezed below the cap. The codec shrinks a message only as far as the cap asks.
double ChainSearch::CrossingSeconds(int grid, int src, int dst, double cap_s) const {
  const int p = grid_[grid];
  double seconds = 0;
  const auto add = [&](const DirectedLink& link, int64_t lossy, int64_t lossless) {
    if (lossy + lossless == 0) return;
    if (link.bytes_per_s <= 0) {
      seconds = kInfinity;
      return;
    }
    const double dense_s = static_cast<double>(lossy + lossless) / link.bytes_per_s;
    const double min_s = (static_cast<double>(lossy) / problem_.max_ratio() + static_cast<double>(lossless)) / link.bytes_per_s;
    seconds += min_s > cap_s ? kInfinity : link.latency_s + std::min(dense_s, cap_s);
  };
  add(problem_.link(src, dst), problem_.LossyBytesAt(p), problem_.LosslessBytesAt(p));
  add(problem_.link(dst, src), problem_.GradientBytesAt(p), 0);
  return seconds;
}

// The least sums with which a device can begin at a grid point, from those of the devices before it that end there. Devices of one kind
// have the same way to every other, so the best of each kind so far stands for all of it.
void ChainSearch::Arrive(double cap_s, bool may_skip, int begin) {
  const int count = static_cast<int>(order_.size());
  const auto kinds = static_cast<int>(kinds_.size());
  best_of_kind_.assign(static_cast<size_t>(layers_) * kinds, {kInfinity, -1, 0});
  crossing_s_.assign(static_cast<size_t>(kinds) * kinds, -1);
  best_before_.assign(kinds, -1);
  int64_t before_count = 0;
  for (int device = 0; device < count; ++device) {
    const int kind = kind_in_order_[device];
    for (int layer = 0; layer < layers_; ++layer) Arrival(layer, begin, device) = {kInfinity, -1, 0};
    for (int other = 0; other < kinds; ++other) {
      const Cell* const best = &best_of_kind_[static_cast<size_t>(other) * layers_];
      const int before = best_before_[other];
      if (before < 0) continue;
      if (layers_ == 1 && best->sum_s > Arrival(0, begin, device).sum_s) continue;  // whatever the way: that takes longest to find out
      double& crossing_s = crossing_s_[static_cast<size_t>(other) * kinds + kind];
      if (crossing_s < 0) crossing_s = CrossingSeconds(begin, order_[before], order_[device], cap_s);
      if (crossing_s == kInfinity) continue;
      for (int layer = constrained_ ? 1 : 0; layer < layers_; ++layer) {  // layer 0: one stage so far
        const Cell& from = best[constrained_ ? layer - 1 : 0];
        const double sum_s = from.sum_s + crossing_s;
        Cell& arrival = Arrival(layer, begin, device);
        if (sum_s < arrival.sum_s || (sum_s == arrival.sum_s && from.from_device < arrival.from_device)) {
          arrival = {sum_s, from.from_device, 0};
        }
      }
    }
    work_ += layers_ * (1 + before_count / kDevicesOfAStep);
    if (!may_skip) {  // only the next device may follow
      std::fill(best_of_kind_.begin(), best_of_kind_.end(), Cell{kInfinity, -1, 0});
      std::fill(best_before_.begin(), best_before_.end(), -1);
    }
    if (!ended_[device]) continue;
    ++before_count;
    best_before_[kind] = device;
    for (int layer = 0; layer < layers_; ++layer) {
      Cell& best = best_of_kind_[static_cast<size_t>(kind) * layers_ + layer];
      if (At(layer, begin, device).sum_s < best.sum_s) best = {At(layer, begin, device).sum_s, static_cast<int16_t>(device), 0};
    }
  }
}

void ChainSearch::Extend(double cap_s, bool may_skip, int device, int end) {
  const int id = order_[device];
  for (int layer = 0; layer < layers_; ++layer) At(layer, end, device) = {kInfinity, -1, 0};
  ended_[device] = 0;
  for (int begin = end - 1; begin >= 0; --begin) {
    const double stage_s = time_[device][end] - time_[device][begin];
    if (stage_s > cap_s * kSlack) break;
    work_ += layers_;
    if (!problem_.Allowed(grid_[begin], grid_[end], id)) continue;
    if (static_bytes_[Pair(begin, end)] > problem_.UsableMemory(id)) break;
    if (NeededBytes(begin, end, device) > problem_.UsableMemory(id)) {
      memory_refused_ = true;
      continue;
    }
    if (begin == 0) {
      if (!may_skip && device != 0) continue;
      ended_[device] = 1;
      if (stage_s < At(0, end, device).sum_s) At(0, end, device) = {stage_s, -1, 0};
      continue;
    }
    for (int layer = 0; layer < layers_; ++layer) {
      const Cell& arrival = Arrival(layer, begin, device);
      const double sum_s = arrival.sum_s + stage_s;
      if (sum_s >= At(layer, end, device).sum_s) continue;
      ended_[device] = 1;
      At(layer, end, device) = {sum_s, arrival.from_device, static_cast<int16_t>(begin)};
    }
  }
}

void ChainSearch::Read(int layer, int device, double cap_s, Result& result) {
  result.assignment = {};
  double bottleneck_s = 0;
  const double sum_s = At(layer, static_cast<int>(grid_.size()) - 1, device).sum_s;
  for (int end = static_cast<int>(grid_.size()) - 1;;) {
    const Cell cell = At(layer, end, device);
    const int begin = cell.from_device < 0 ? 0 : cell.from_grid;
    result.assignment.begins.push_back(grid_[begin]);
    result.assignment.devices.push_back(order_[device]);
    bottleneck_s = std::max(bottleneck_s, time_[device][end] - time_[device][begin]);
    if (cell.from_device < 0) break;
    // Links count by what the cap let them take.
    const double crossing_s = CrossingSeconds(begin, order_[cell.from_device], order_[device], cap_s);
    const double latency_s = problem_.link(order_[cell.from_device], order_[device]).latency_s +
                             problem_.link(order_[device], order_[cell.from_device]).latency_s;
    bottleneck_s = std::max(bottleneck_s, std::min(cap_s, crossing_s - latency_s));
    end = begin;
    device = cell.from_device;
    if (constrained_) --layer;
  }
  std::reverse(result.assignment.begins.begin(), result.assignment.begins.end());
  std::reverse(result.assignment.devices.begin(), result.assignment.devices.end());
  result.sum_s = sum_s;
  result.estimate_s = FillPlusBottleneck(sum_s, bottleneck_s, problem_.request().micro_batches);
}

bool ChainSearch::Solve(double cap_s, bool may_skip, Result& result) {
  const int count = static_cast<int>(order_.size()), last = static_cast<int>(grid_.size()) - 1;
  cells_.resize(static_cast<size_t>(layers_) * grid_.size() * order_.size());
  arrivals_.resize(cells_.size());
  ended_.assign(count, 0);
  for (int end = 1; end <= last; ++end) {
    if (problem_.Stopped()) return false;
    for (int device = 0; device < count; ++device) Extend(cap_s, may_skip, device, end);
    if (end < last) Arrive(cap_s, may_skip, end);
  }
  double best_s = kInfinity;
  int best_layer = 0, best_device = 0;
  for (int layer = 0; layer < layers_; ++layer) {
    if (constrained_ && (layer + 1 < problem_.min_stages() || layer + 1 > problem_.max_stages())) continue;
    for (int device = may_skip ? 0 : count - 1; device < count; ++device) {
      if (At(layer, last, device).sum_s >= best_s) continue;
      best_s = At(layer, last, device).sum_s;
      best_layer = layer;
      best_device = device;
    }
  }
  if (best_s == kInfinity) return false;
  Read(best_layer, best_device, cap_s, result);
  return true;
}

std::vector<ChainSearch::Result> ChainSearch::Partition(std::span<const int> order, bool may_skip, size_t limit) {
  order_.assign(order.begin(), order.end());
  const int count = static_cast<int>(order_.size());
  // There are never more stages than devices in the order or segments of the grid: a limit beyond that need not be watched.
  const int most = std::min(count, static_cast<int>(grid_.size()) - 1);
  constrained_ = may_skip && (problem_.min_stages() > 1 || problem_.max_stages() < most);
  layers_ = constrained_ ? std::min(problem_.max_stages(), count) : 1;
  kind_in_order_.assign(count, 0);
  kinds_.clear();
  for (int d = 0; d < count; ++d) {
    const int kind = problem_.links().kind(order_[d]);
    const auto known = std::find(kinds_.begin(), kinds_.end(), kind);
    kind_in_order_[d] = static_cast<int>(known - kinds_.begin());
    if (known == kinds_.end()) kinds_.push_back(kind);
  }
  time_.assign(count, {});
  for (int d = 0; d < count; ++d) {
    for (int p : grid_) time_[d].push_back(problem_.ForwardSeconds(0, p, order_[d]) + problem_.BackwardSeconds(0, p, order_[d]));
  }
  std::vector<Result> results;
  memory_refused_ = false;
  depth_ = Depth::kTextbook;
  Sweep(may_skip, results);
  if (memory_refused_) {
    depth_ = Depth::kOne;
    Sweep(may_skip, results);
  }
  std::stable_sort(results.begin(), results.end(), [](const Result& a, const Result& b) { return a.estimate_s < b.estimate_s; });
  if (results.size() > limit) results.resize(limit);
  return results;
}

void ChainSearch::Sweep(bool may_skip, std::vector<Result>& results) {
  const int m = problem_.request().micro_batches;
  const auto keep = [&](const Result& result) {
    const bool known = std::any_of(results.begin(), results.end(), [&](const Result& r) { return r.assignment == result.assignment; });
    if (!known) results.push_back(result);
  };
  Result result;
  if (!Solve(kInfinity, may_skip, result)) return;
  keep(result);
  // The fill of the uncapped solution is a bound on every other's.
  const double min_sum_s = result.sum_s;
  double best_s = result.estimate_s;
  double cap_s = std::max(min_bottleneck_s_, 1e-12), infeasible_s = 0;
  while (!Solve(cap_s, may_skip, result)) {
    if (problem_.Stopped() || FillPlusBottleneck(min_sum_s, cap_s, m) >= best_s) return;
    infeasible_s = cap_s;
    cap_s *= 1.5;
  }
  for (double low_s = infeasible_s, high_s = cap_s; low_s > 0 && high_s / low_s > kCapStep;) {
    const double middle_s = std::sqrt(low_s * high_s);
    (Solve(middle_s, may_skip, result) ? high_s : low_s) = middle_s;
    cap_s = high_s;
  }
  for (; FillPlusBottleneck(min_sum_s, cap_s, m) < best_s && !problem_.Stopped(); cap_s *= kCapStep) {
    if (!Solve(cap_s, may_skip, result)) continue;
    best_s = std::min(best_s, result.estimate_s);
    keep(result);
  }
}

}  // namespace fusionllm::scheduler
