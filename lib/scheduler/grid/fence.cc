#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "lib/scheduler/grid/annealing.h"
#include "lib/scheduler/grid/grid_search.h"

namespace fusionllm::scheduler::grid {
namespace {

constexpr double kSameCost_s = 1e-9;

using Communities = std::vector<std::vector<int>>;

// Single linkage over the boundary cost (Kruskal): the communities after every distinct merge height, fine to coarse.
std::vector<Communities> Resolutions(const GridProblem& problem) {
  const int n = problem.devices();
  std::vector<std::tuple<double, int, int>> edges;
  for (int a = 0; a < n; ++a) {
    for (int b = a + 1; b < n; ++b) edges.emplace_back(problem.boundary_s(a, b), a, b);
  }
  std::sort(edges.begin(), edges.end());
  Communities members(n);
  std::vector<int> home(n);
  for (int device = 0; device < n; ++device) members[home[device] = device] = {device};
  std::vector<Communities> resolutions = {members};  // every device alone
  for (size_t i = 0; i < edges.size(); ++i) {
    const auto [cost, a, b] = edges[i];
    if (home[a] != home[b]) {
      const int into = home[a], from = home[b];
      for (const int device : members[from]) home[device] = into;
      members[into].insert(members[into].end(), members[from].begin(), members[from].end());
      members[from].clear();
    }
    if (i + 1 < edges.size() && std::get<0>(edges[i + 1]) == cost) continue;
    Communities present;
    for (const std::vector<int>& community : members) {
      if (!community.empty()) present.push_back(community);
    }
    std::stable_sort(present.begin(), present.end(), [](const auto& x, const auto& y) { return x.size() > y.size(); });
    if (resolutions.back().size() != present.size()) resolutions.push_back(std::move(present));
  }
  return resolutions;
}

// Takes `count` pieces of `size` devices out of the communities, largest first; nothing when there are fewer.
std::vector<std::vector<int>> TakePieces(Communities& communities, int size, int count) {
  int there = 0;
  for (const auto& community : communities) there += static_cast<int>(community.size()) / size;
  std::vector<std::vector<int>> pieces;
  if (there < count) return pieces;
  for (std::vector<int>& community : communities) {
    while (static_cast<int>(community.size()) >= size && static_cast<int>(pieces.size()) < count) {
      pieces.emplace_back(community.end() - size, community.end());
      community.resize(community.size() - size);
    }
  }
  return pieces;
}

std::vector<int> Leftovers(const Communities& communities) {
  std::vector<int> rest;
  for (const auto& community : communities) rest.insert(rest.end(), community.begin(), community.end());
  return rest;
}

void FillRows(const GridProblem& problem, const std::vector<int>& rest, Grid& grid) {
  for (size_t i = 0; i < rest.size(); i += problem.pipelines()) {
    grid.emplace_back(rest.begin() + static_cast<std::ptrdiff_t>(i), rest.begin() + static_cast<std::ptrdiff_t>(i) + problem.pipelines());
  }
}

// Fast links inside stages: a stage is a piece of one community where there is such a piece.
Grid AcrossStages(const GridProblem& problem, Communities communities) {
  Grid grid;
  while (true) {
    std::vector<std::vector<int>> piece = TakePieces(communities, problem.pipelines(), 1);
    if (piece.empty()) break;
    grid.push_back(std::move(piece[0]));
  }
  FillRows(problem, Leftovers(communities), grid);
  return grid;
}

// Fast links between stages: runs of stages, as long as can be, in which every pipeline stays inside one community. A boundary is as slow
// as its slowest pair, so that a run is worth something only when all pipelines have such a piece.
Grid AlongPipelines(const GridProblem& problem, Communities communities) {
  Grid grid;
  for (int run = problem.stages(); run >= 2;) {
    const int left = problem.stages() - static_cast<int>(grid.size());
    std::vector<std::vector<int>> pieces;
    if (run <= left) pieces = TakePieces(communities, run, problem.pipelines());
    if (pieces.empty()) {
      --run;
      continue;
    }
    for (int stage = 0; stage < run; ++stage) {
      std::vector<int> row;
      for (const auto& piece : pieces) row.push_back(piece[stage]);
      grid.push_back(std::move(row));
    }
  }
  FillRows(problem, Leftovers(communities), grid);
  return grid;
}

}  // namespace

GridPlan FenceGrid(const GridProblem& problem, uint64_t seed, const FenceOptions& options) {
  GridPlan plan;
  std::vector<std::pair<double, Grid>> layouts;
  const auto add = [&](const Grid& partition) {
    ++plan.evaluations;
    Grid grid = OrderPartition(problem, partition);
    const double cost = ScoreGrid(problem, grid).total_s();
    for (const auto& [known, layout] : layouts) {
      if (known == cost) return;  // as good as the same; diversity is worth more
    }
    layouts.emplace_back(cost, std::move(grid));
  };
  for (const Communities& communities : Resolutions(problem)) {
    add(AcrossStages(problem, communities));
    add(AlongPipelines(problem, communities));
  }
  std::stable_sort(layouts.begin(), layouts.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  plan.grid = layouts.front().second;
  plan.cost = ScoreGrid(problem, plan.grid);
  Rng rng(seed);
  int converged = 0;  // anneals that ended at the best cost
  for (int start = 0; start < options.starts && converged < options.max_converged; ++start) {
    // By turns a layout, the best more than once when there are few, and devices as they fall, which end up elsewhere.
    const bool deal = start % 2 == 1;
    const Grid annealed =
        Anneal(problem, deal ? RandomGrid(problem, rng.Bits()).grid : layouts[start / 2 % layouts.size()].second, options.evaluations, rng);
    plan.evaluations += options.evaluations;
    const Cost cost = ScoreGrid(problem, annealed);
    const double gained_s = plan.cost.total_s() - cost.total_s();
    if (gained_s > kSameCost_s) converged = 0;
    if (gained_s > -kSameCost_s) ++converged;
    if (gained_s > 0) {
      plan.grid = annealed;
      plan.cost = cost;
    }
  }
  return plan;
}

}  // namespace fusionllm::scheduler::grid
