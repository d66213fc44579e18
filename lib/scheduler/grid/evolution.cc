#include <algorithm>
#include <limits>
#include <numeric>

#include "lib/scheduler/grid/draws.h"
#include "lib/scheduler/grid/grid_search.h"

namespace fusionllm::scheduler::grid {
namespace {

// One cycle a child leaves the world-wide network at 55.1 s; with two to eight the search reaches what its authors report on all five.
constexpr int kCyclesOfAChild = 4;

// A partition's cost with the best order and matchings.
double PartitionCost(const GridProblem& problem, const Grid& partition) {
  const Grid grid = Realise(problem, partition);
  return ScoreGrid(problem, grid).total_s();
}

std::vector<int> GroupOf(const Grid& partition, int devices) {
  std::vector<int> group(devices);
  for (size_t g = 0; g < partition.size(); ++g) {
    for (const int device : partition[g]) group[device] = static_cast<int>(g);
  }
  return group;
}

Grid PartitionOf(const std::vector<int>& group_of, int groups) {
  Grid partition(groups);
  for (size_t device = 0; device < group_of.size(); ++device) partition[group_of[device]].push_back(static_cast<int>(device));
  return partition;
}

// The same partition with its groups renamed as they overlap most with those of `model`, greedily: names of groups mean nothing, so
// without it a crossing of equal parents would differ from both.
std::vector<int> RenamedLike(const std::vector<int>& model, const std::vector<int>& group_of, int groups) {
  std::vector<std::vector<int>> overlap(groups, std::vector<int>(groups));
  for (size_t device = 0; device < model.size(); ++device) ++overlap[group_of[device]][model[device]];
  std::vector<int> name(groups, -1);
  std::vector<bool> taken(groups);
  for (int round = 0; round < groups; ++round) {
    int best = -1, best_name = -1;
    for (int g = 0; g < groups; ++g) {
      for (int m = 0; m < groups && name[g] < 0; ++m) {
        if (!taken[m] && (best < 0 || overlap[g][m] > overlap[best][best_name])) best = g, best_name = m;
      }
    }
    name[best] = best_name;
    taken[best_name] = true;
  }
  std::vector<int> renamed;
  for (const int g : group_of) renamed.push_back(name[g]);
  return renamed;
}

// Crossing at several points of the list of devices; groups that are too large give random devices to those that are too small.
Grid Cross(const Grid& mother, const Grid& father, int devices, int group_size, Draws& draws) {
  const int groups = static_cast<int>(mother.size());
  std::vector<int> child = GroupOf(mother, devices);
  const std::vector<int> other = RenamedLike(child, GroupOf(father, devices), groups);
  std::vector<int> cuts;
  for (int i = 0; i < 5; ++i) cuts.push_back(draws.Below(devices));
  std::sort(cuts.begin(), cuts.end());
  bool take = false;
  for (int device = 0, cut = 0; device < devices; ++device) {
    while (cut < static_cast<int>(cuts.size()) && cuts[cut] == device) take = !take, ++cut;
    if (take) child[device] = other[device];
  }
  Grid partition = PartitionOf(child, groups);
  std::vector<int> homeless;
  for (std::vector<int>& group : partition) {
    while (static_cast<int>(group.size()) > group_size) {
      const int out = draws.Below(static_cast<int>(group.size()));
      homeless.push_back(group[out]);
      group.erase(group.begin() + out);
    }
  }
  draws.Shuffle(homeless);
  for (std::vector<int>& group : partition) {
    while (static_cast<int>(group.size()) < group_size) {
      group.push_back(homeless.back());
      homeless.pop_back();
    }
  }
  return partition;
}

// The gain of moving device d from its group to another (section 4.2): what d's links to that group cost on average less what its fastest
// link inside its own group costs, since that link would then join the two groups.
double Gain(const GridProblem& problem, const Grid& partition, int from, int device, int to) {
  double fastest = std::numeric_limits<double>::infinity(), sum = 0;
  for (const int peer : partition[from]) {
    if (peer != device) fastest = std::min(fastest, problem.boundary_s(device, peer));
  }
  for (const int peer : partition[to]) sum += problem.boundary_s(device, peer);
  return sum / static_cast<double>(partition[to].size()) - fastest;
}

// A cycle of moves: each takes the device of the best gain from the present group to an unlocked one, and goes on from there; the last
// returns to the first group.
void MoveInCycles(const GridProblem& problem, Grid& partition, Draws& draws) {
  const int groups = static_cast<int>(partition.size());
  std::vector<bool> locked(groups);
  const int start = draws.Below(groups);
  int from = start;
  for (int moves = 0; moves < groups; ++moves) {
    double best_gain = -std::numeric_limits<double>::infinity();
    size_t best_device = 0;
    int best_to = -1;
    for (size_t i = 0; i < partition[from].size(); ++i) {
      for (int to = 0; to < groups; ++to) {
        if (to == from || to == start || locked[to]) continue;
        const double gain = Gain(problem, partition, from, partition[from][i], to);
        if (gain > best_gain) best_gain = gain, best_device = i, best_to = to;
      }
    }
    if (best_to < 0 || best_gain <= 0) break;
    partition[best_to].push_back(partition[from][best_device]);
    partition[from].erase(partition[from].begin() + static_cast<std::ptrdiff_t>(best_device));
    locked[from] = true;
    from = best_to;
  }
  if (from == start) return;
  size_t back = 0;
  double best_gain = -std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < partition[from].size(); ++i) {
    const double gain = Gain(problem, partition, from, partition[from][i], start);
    if (gain > best_gain) best_gain = gain, back = i;
  }
  partition[start].push_back(partition[from][back]);
  partition[from].erase(partition[from].begin() + static_cast<std::ptrdiff_t>(back));
}

Grid RandomPartition(const GridProblem& problem, Draws& draws) {
  std::vector<int> devices(problem.devices());
  std::iota(devices.begin(), devices.end(), 0);
  draws.Shuffle(devices);
  Grid partition(problem.stages());
  for (size_t i = 0; i < devices.size(); ++i) partition[i / problem.pipelines()].push_back(devices[i]);
  return partition;
}

}  // namespace

GridPlan DealRandomly(const GridProblem& problem, uint64_t seed) {
  Draws draws(seed);
  GridPlan plan{.grid = RandomPartition(problem, draws), .evaluations = 1};
  plan.cost = ScoreGrid(problem, plan.grid);
  return plan;
}

GridPlan Evolve(const GridProblem& problem, uint64_t seed, const EvolutionOptions& options) {
  struct Member {
    Grid partition;
    double cost = 0;
  };
  Draws draws(seed);
  GridPlan plan;
  std::vector<Member> population;
  const auto judged = [&](Grid partition) {
    ++plan.evaluations;
    const double cost = PartitionCost(problem, partition);
    return Member{std::move(partition), cost};
  };
  for (int i = 0; i < std::max(options.population, 2); ++i) {
    Grid partition = RandomPartition(problem, draws);
    if (problem.stages() > 1) MoveInCycles(problem, partition, draws);
    population.push_back(judged(std::move(partition)));
  }
  const auto by_cost = [](const Member& a, const Member& b) { return a.cost < b.cost; };
  for (int trial = 0; trial < options.trials && problem.stages() > 1; ++trial) {
    const int mother = draws.Below(static_cast<int>(population.size()));
    const int father = (mother + 1 + draws.Below(static_cast<int>(population.size()) - 1)) % static_cast<int>(population.size());
    Grid child = Cross(population[mother].partition, population[father].partition, problem.devices(), problem.pipelines(), draws);
    for (int cycle = 0; cycle < kCyclesOfAChild; ++cycle) MoveInCycles(problem, child, draws);
    Member member = judged(std::move(child));
    const auto worst = std::max_element(population.begin(), population.end(), by_cost);
    if (member.cost < worst->cost) *worst = std::move(member);
  }
  plan.grid = Realise(problem, std::min_element(population.begin(), population.end(), by_cost)->partition);
  plan.cost = ScoreGrid(problem, plan.grid);
  return plan;
}

}  // namespace fusionllm::scheduler::grid
