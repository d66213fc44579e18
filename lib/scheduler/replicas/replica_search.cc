#include "lib/scheduler/replicas/replica_search.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "lib/base/philox.h"

namespace fusionllm::scheduler::replicas {
namespace {

constexpr size_t kClimbs = 4;
constexpr size_t kFences = 6;         // shapes for which the allocation problem is solved
constexpr size_t kFinalists = 8;      // judged with full effort
constexpr size_t kCutsOfAnOrder = 3;  // of one dynamic program that are judged
constexpr int kPipelinesThatCut = 4;  // up to so many, the cuts of every pipeline are tried on all
constexpr int kRecutBelow = 12;       // devices: cuts are found again after each change of the grid
constexpr int kDeals = 8;             // at random, of each shape
constexpr int kMaxRestarts = 64;
constexpr double kWorthRecutting = 1.25;

bool IsBetter(const FoundGrid& a, const FoundGrid& b) {
  if (a.evaluation.feasible() != b.evaluation.feasible()) return a.evaluation.feasible();
  const double cost_a = a.evaluation.cost_s(), cost_b = b.evaluation.cost_s();
  if (std::abs(cost_a - cost_b) > kSameTime * cost_b) return cost_a < cost_b;
  return a.grid.stages() * a.grid.pipelines() < b.grid.stages() * b.grid.pipelines();
}

class GridSearch {
 public:
  GridSearch(ReplicaEvaluator& evaluator, const std::vector<GridShape>& shapes)
      : evaluator_(evaluator),
        problem_(evaluator.problem()),
        random_(problem_.request().seed, "replicas"),
        shapes_(shapes),
        budget_(problem_.request().search_budget) {}

  GridSearchResult Run() {
    limit_ = budget_ / 2;
    Start();
    if (pool_.empty()) return {.failed = std::move(failed_)};
    limit_ = budget_ * 3 / 4;
    for (size_t i = 0; i < pool_.size() && i < kClimbs && !Done(); ++i) HillClimb(pool_[i]);
    SortPool();
    limit_ = budget_ * 9 / 10;
    Restart();
    Finish();
    return {.best = std::move(pool_[0])};
  }

 private:
  bool Done() const { return evaluator_.work() >= limit_ || problem_.Stopped(); }
  bool AllowsStages(int stages, int pipelines) const {
    return std::find(shapes_.begin(), shapes_.end(), GridShape{stages, pipelines}) != shapes_.end();
  }

  void Start() {
    std::vector<std::vector<DeviceGrid>> grids;
    size_t most = 0;
    for (const GridShape& shape : shapes_) {
      grids.push_back(SimpleGrids(problem_, shape));
      most = std::max(most, grids.back().size());
    }
    // The first allocation of every shape before the second of any: the budget may not reach.
    for (size_t i = 0; i < most; ++i) {
      for (const std::vector<DeviceGrid>& of_shape : grids) {
        if (i < of_shape.size() && (pool_.empty() || !Done()) && !problem_.Stopped()) Consider(of_shape[i]);
      }
    }
    DealAtRandom();
    SortPool();
    std::vector<GridShape> promising;
    for (const FoundGrid& found : pool_) {
      const GridShape shape{found.grid.stages(), found.grid.pipelines()};
      if (promising.size() < kFences) promising.push_back(shape);
    }
    for (const GridShape& shape : promising) {
      if (Done()) break;
      for (const DeviceGrid& devices : FenceGrids(problem_, shape, problem_.request().seed)) Consider(devices);
    }
    SortPool();
  }

  // Devices as they fall: what is left where memory or missing links forbid the allocations above.
  void DealAtRandom() {
    for (int deal = 0; deal < kDeals; ++deal) {
      for (const GridShape& shape : shapes_) {
        if (Done() && (!pool_.empty() || problem_.Stopped())) return;
        std::vector<int> devices = problem_.usable();
        for (size_t i = devices.size(); i > 1; --i) std::swap(devices[i - 1], devices[Below(i)]);
        DeviceGrid grid(shape.stages);
        for (int s = 0; s < shape.stages; ++s)
          grid[s].assign(devices.begin() + s * shape.pipelines, devices.begin() + (s + 1) * shape.pipelines);
        Consider(grid);
      }
    }
  }

  size_t Below(size_t bound) { return static_cast<size_t>(random_.Below(draw_++, bound)); }

  // Cut in every way that is worth a look; the pool keeps the best of each shape.
  void Consider(const DeviceGrid& devices) {
    FoundGrid best = BestCuts(devices);
    if (!best.evaluation.feasible()) {
      if (!failed_.has_value()) failed_ = std::move(best);
      return;
    }
    for (FoundGrid& found : pool_) {
      if (found.grid.stages() != best.grid.stages() || found.grid.pipelines() != best.grid.pipelines()) continue;
      if (IsBetter(best, found)) found = std::move(best);
      return;
    }
    pool_.push_back(std::move(best));
  }

  FoundGrid BestCuts(const DeviceGrid& devices) {
    FoundGrid best{EquallyCut(devices), {}};
    best.evaluation = evaluator_.Evaluate(best.grid, effort_);
    if (best.grid.stages() == 1) return best;
    std::vector<std::vector<int>> tried = {best.grid.begins};
    for (const auto& [pipeline, order] : Orders(best.grid)) {
      const int share = best.evaluation.shares.empty() ? MeanShare(best.grid) : best.evaluation.shares[pipeline];
      for (std::vector<int>& begins : evaluator_.Cuts(best.grid, pipeline, order, share, kCutsOfAnOrder)) {
        if (std::find(tried.begin(), tried.end(), begins) != tried.end()) continue;
        tried.push_back(begins);
        FoundGrid other{{std::move(begins), devices}, {}};
        other.evaluation = evaluator_.Evaluate(other.grid, effort_);
        if (IsBetter(other, best)) best = std::move(other);
      }
    }
    return best;
  }

  int MeanShare(const ReplicaGrid& grid) const {
    const int pipelines = std::max(1, grid.pipelines());
    return (problem_.request().micro_batches + pipelines - 1) / pipelines;
  }

  // By number of ops: to know which pipelines share what, before there are better cuts.
  ReplicaGrid EquallyCut(const DeviceGrid& devices) const {
    ReplicaGrid grid{{0}, devices};
    const int ops = problem_.positions() - problem_.first_cut() + 1, count = grid.stages();
    for (int s = 1; s < count; ++s) grid.begins.push_back(problem_.first_cut() - 1 + static_cast<int>(int64_t{s} * ops / count));
    return grid;
  }

  // Orders of devices, one of each stage, to cut for: the slowest replicas, and pipelines as they are.
  std::vector<std::pair<int, std::vector<int>>> Orders(const ReplicaGrid& grid) const {
    std::vector<std::pair<int, std::vector<int>>> orders;
    const auto add = [&](int pipeline, std::vector<int> order) {
      const bool known = std::any_of(orders.begin(), orders.end(), [&](const auto& other) { return other.second == order; });
      if (!known) orders.emplace_back(pipeline, std::move(order));
    };
    std::vector<int> slowest, smallest;
    for (const std::vector<int>& row : grid.devices) {
      slowest.push_back(*std::max_element(row.begin(), row.end(),
                                          [&](int a, int b) { return WholeModelSeconds(problem_, a) < WholeModelSeconds(problem_, b); }));
      smallest.push_back(
          *std::min_element(row.begin(), row.end(), [&](int a, int b) { return problem_.UsableMemory(a) < problem_.UsableMemory(b); }));
    }
    add(0, std::move(slowest));
    add(0, std::move(smallest));
    for (int d = 0; d < std::min(grid.pipelines(), kPipelinesThatCut); ++d) add(d, grid.Pipeline(d).devices);
    return orders;
  }

  void SortPool() { std::stable_sort(pool_.begin(), pool_.end(), IsBetter); }

  bool TryImprove(FoundGrid& current, ReplicaGrid grid) {
    FoundGrid other{std::move(grid), {}};
    other.evaluation = evaluator_.Evaluate(other.grid, effort_);
    if (!IsBetter(other, current)) return false;
    current = std::move(other);
    return true;
  }

  // With cuts of its own where that is cheap and it is not hopeless, else as cut now.
  bool TryDevices(FoundGrid& current, const DeviceGrid& devices) {
    if (devices.size() == current.grid.devices.size()) {
      FoundGrid same_cuts{{current.grid.begins, devices}, {}};
      same_cuts.evaluation = evaluator_.Evaluate(same_cuts.grid, effort_);
      if (IsBetter(same_cuts, current)) {
        current = std::move(same_cuts);
        return true;
      }
      const bool near = same_cuts.evaluation.feasible() && same_cuts.evaluation.cost_s() < kWorthRecutting * current.evaluation.cost_s();
      if (!near && same_cuts.evaluation.feasible()) return false;
    }
    if (static_cast<int>(devices.size() * devices[0].size()) > kRecutBelow && devices.size() == current.grid.devices.size()) return false;
    FoundGrid recut = BestCuts(devices);
    if (recut.evaluation.feasible() && recut.evaluation.cost_s() < kWorthRecutting * current.evaluation.cost_s()) ShiftCuts(recut);
    if (!IsBetter(recut, current)) return false;
    current = std::move(recut);
    return true;
  }

  bool ShiftCuts(FoundGrid& current) {
    bool improved = false;
    for (bool again = true; again && !Done();) {
      again = false;
      for (size_t s = 1; s < current.grid.begins.size(); ++s) {
        for (const int shift : {1, -1, 2, -2, 3, -3, 5, -5, 8, -8, 13, -13}) {
          ReplicaGrid moved = current.grid;
          moved.begins[s] += shift;
          const int low = s == 1 ? problem_.first_cut() : moved.begins[s - 1] + 1;
          const int high = s + 1 < moved.begins.size() ? moved.begins[s + 1] - 1 : problem_.positions() - 1;
          if (moved.begins[s] < low || moved.begins[s] > high) continue;
          if (TryImprove(current, std::move(moved))) again = improved = true;
          if (Done()) return improved;
        }
      }
    }
    return improved;
  }

  std::vector<int> Unused(const DeviceGrid& devices) const {
    std::vector<int> unused;
    for (const int device : problem_.usable()) {
      const bool used = std::any_of(devices.begin(), devices.end(),
                                    [&](const std::vector<int>& row) { return std::find(row.begin(), row.end(), device) != row.end(); });
      if (!used) unused.push_back(device);
    }
    std::stable_sort(unused.begin(), unused.end(),
                     [&](int a, int b) { return WholeModelSeconds(problem_, a) < WholeModelSeconds(problem_, b); });
    return unused;
  }

  // Visits grids one change away until one is taken. In the order of their promise: sizes, swaps, replacements.
  bool ChangeDevices(FoundGrid& current) {
    const DeviceGrid from = current.grid.devices;
    const int stages = current.grid.stages(), pipelines = current.grid.pipelines();
    const std::vector<int> unused = Unused(from);
    const auto attempt = [&](const DeviceGrid& devices) { return !Done() && TryDevices(current, devices); };
    for (int d = 0; d < pipelines && AllowsStages(stages, pipelines - 1); ++d) {
      DeviceGrid fewer = from;
      for (std::vector<int>& row : fewer) row.erase(row.begin() + d);
      if (attempt(fewer)) return true;
    }
    for (int s = 0; s < stages && AllowsStages(stages - 1, pipelines); ++s) {
      DeviceGrid fewer = from;
      fewer.erase(fewer.begin() + s);
      if (attempt(fewer)) return true;
    }
    if (AllowsStages(stages, pipelines + 1) && static_cast<int>(unused.size()) >= stages) {
      DeviceGrid more = from;
      for (int s = 0; s < stages; ++s) more[s].push_back(unused[s]);
      if (attempt(more)) return true;
    }
    if (AllowsStages(stages + 1, pipelines) && static_cast<int>(unused.size()) >= pipelines) {
      for (int s = 0; s <= stages; ++s) {
        DeviceGrid more = from;
        more.insert(more.begin() + s, std::vector<int>(unused.begin(), unused.begin() + pipelines));
        if (attempt(more)) return true;
      }
    }
    const int cells = stages * pipelines;
    for (int a = 0; a < cells; ++a) {
      for (int b = a + 1; b < cells; ++b) {
        DeviceGrid swapped = from;
        std::swap(swapped[a / pipelines][a % pipelines], swapped[b / pipelines][b % pipelines]);
        if (attempt(swapped)) return true;
      }
      for (const int device : unused) {
        DeviceGrid replaced = from;
        replaced[a / pipelines][a % pipelines] = device;
        if (attempt(replaced)) return true;
      }
      if (Done()) return false;
    }
    for (int a = 0; a < stages; ++a) {
      for (int b = a + 1; b < stages; ++b) {
        DeviceGrid swapped = from;
        std::swap(swapped[a], swapped[b]);
        if (attempt(swapped)) return true;
      }
    }
    return false;
  }

  void HillClimb(FoundGrid& current) {
    do {
      ShiftCuts(current);
    } while (!Done() && ChangeDevices(current));
  }

  // The best of each of the two best shapes, in the sorted pool: climbs from one shape end in few grids, time and again.
  const FoundGrid& BestOfAShape(size_t which) const {
    const GridShape first{pool_[0].grid.stages(), pool_[0].grid.pipelines()};
    const auto other = std::find_if(pool_.begin(), pool_.end(), [&](const FoundGrid& found) {
      return GridShape{found.grid.stages(), found.grid.pipelines()} != first;
    });
    return which == 0 || other == pool_.end() ? pool_[0] : *other;
  }

  // Out of the valley: devices of the best swapped at random, with each other or with unused ones.
  void Restart() {
    for (int restart = 0; restart < kMaxRestarts && !Done(); ++restart) {
      DeviceGrid devices = BestOfAShape(Below(2)).grid.devices;
      const std::vector<int> unused = Unused(devices);
      const auto any_cell = [&]() -> int& {
        std::vector<int>& row = devices[Below(devices.size())];
        return row[Below(row.size())];
      };
      for (int kick = 0; kick < 2; ++kick) {
        int &a = any_cell(), &b = any_cell();
        std::swap(a, b);
      }
      if (!unused.empty()) any_cell() = unused[Below(unused.size())];
      FoundGrid kicked = BestCuts(devices);
      if (!kicked.evaluation.feasible()) continue;
      HillClimb(kicked);
      pool_.push_back(std::move(kicked));
      SortPool();
    }
  }

  // Quick evaluations fix the depth of pipelines by a formula; the last word has the search over depths.
  void Finish() {
    effort_ = Effort::kFull;
    limit_ = budget_;
    if (pool_.size() > kFinalists) pool_.resize(kFinalists);
    size_t judged = 0;
    while (judged < pool_.size() && (judged == 0 || !Done())) {
      pool_[judged].evaluation = evaluator_.Evaluate(pool_[judged].grid, effort_);
      ++judged;
    }
    pool_.resize(judged);
    SortPool();
    for (size_t i = 0; i < pool_.size() && i < 2 && !Done(); ++i) HillClimb(pool_[i]);
    evaluator_.UseFullChainSearch();
    for (FoundGrid& found : pool_) {
      if (found.evaluation.feasible()) found.evaluation = evaluator_.EvaluateWithShares(found.grid, found.evaluation.shares, effort_);
    }
    SortPool();
  }

  ReplicaEvaluator& evaluator_;
  const Problem& problem_;
  const base::CounterRng random_;
  uint64_t draw_ = 0;
  const std::vector<GridShape>& shapes_;
  const int64_t budget_;
  int64_t limit_ = 0;
  Effort effort_ = Effort::kQuick;
  std::vector<FoundGrid> pool_;
  std::optional<FoundGrid> failed_;
};

}  // namespace

GridSearchResult SearchGrids(ReplicaEvaluator& evaluator, const std::vector<GridShape>& shapes) {
  return GridSearch(evaluator, shapes).Run();
}

}  // namespace fusionllm::scheduler::replicas
