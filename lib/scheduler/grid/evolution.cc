#include <algorithm>
#include <limits>
#include <numeric>

#include "lib/scheduler/grid/grid_search.h"
#include "lib/scheduler/grid/rng.h"

namespace fusionllm::scheduler::grid {
namespace {

// A partition's cost with the best order and matchings.
double PartitionCost(const GridProblem& problem, const Grid& partition) {
  const Grid grid = OrderPartition(problem, partition);
  return ScoreGrid(problem, grid).total_s();
}

using Groups = std::vector<int>;  // of each device

Grid PartitionOf(const Groups& group_of, int groups) {
  Grid partition(groups);
  for (size_t device = 0; device < group_of.size(); ++device) partition[group_of[device]].push_back(static_cast<int>(device));
  return partition;
}

// A child has the groups of one parent, but for a few devices those of the other; groups that have become too large give their first
// devices to the first that are too small.
Groups Cross(const Groups& one, const Groups& other, int group_size, Rng& rng) {
  constexpr int kTaken = 5;
  Groups child = one;
  std::vector<int> devices(one.size());
  std::iota(devices.begin(), devices.end(), 0);
  rng.Shuffle(devices);
  for (int i = 0; i < std::min<int>(kTaken, static_cast<int>(devices.size())); ++i) child[devices[i]] = other[devices[i]];
  std::vector<int> sizes(one.size() / group_size);
  for (const int group : child) ++sizes[group];
  for (int& group : child) {
    if (sizes[group] <= group_size) continue;
    const auto small = std::find_if(sizes.begin(), sizes.end(), [&](int size) { return size < group_size; });
    ++*small;
    --sizes[group];
    group = static_cast<int>(small - sizes.begin());
  }
  return child;
}

// The local search (section 4.2): from group to group goes the device whose fastest link
// inside its group is the fastest, to where its links cost most on average, since that fast link then joins two groups.
class CyclicMoves {
 public:
  CyclicMoves(const GridProblem& problem, Groups groups)
      : problem_(problem), stages_(problem.stages()), groups_(std::move(groups)), locked_(groups_.size()), visited_(stages_) {}

  // Cycles until every group was visited; of the prefixes of their row the one of the largest gain.
  Groups Improved() {
    Groups best = groups_;
    double gain = 0, best_gain = 0;
    for (int cycle = 0; cycle < stages_ && std::find(visited_.begin(), visited_.end(), false) != visited_.end(); ++cycle) {
      if (!Cycle(gain)) break;
      if (gain <= best_gain) continue;
      best_gain = gain;
      best = groups_;
    }
    return best;
  }

 private:
  static constexpr double kNone = -std::numeric_limits<double>::infinity();
  struct Move {
    int device, from;
    double gain, closing_gain;  // of the move, and of one to where the cycle began instead
  };
  // What may leave a group next: none (-1) when all its devices have moved.
  struct Leaver {
    int device = -1, to = -1;
    double gain = kNone;
    std::vector<double> gains;  // by target
  };

  Leaver LeaverOf(int group) const {
    Leaver leaver{.gains = std::vector<double>(stages_, kNone)};
    double fastest = std::numeric_limits<double>::infinity();
    const int devices = static_cast<int>(groups_.size());
    for (int device = 0; device < devices; ++device) {
      if (groups_[device] != group || locked_[device]) continue;
      for (int peer = 0; peer < devices; ++peer) {
        if (peer == device || groups_[peer] != group || problem_.boundary_s(device, peer) >= fastest) continue;
        fastest = problem_.boundary_s(device, peer);
        leaver.device = device;
      }
    }
    if (leaver.device < 0) return leaver;
    std::vector<double> sum(stages_);
    std::vector<int> count(stages_);
    for (int peer = 0; peer < devices; ++peer) {
      if (peer != leaver.device) sum[groups_[peer]] += problem_.boundary_s(leaver.device, peer);
      ++count[groups_[peer]];
    }
    for (int target = 0; target < stages_; ++target) {
      if (target == group) continue;
      leaver.gains[target] = sum[target] / std::max(count[target], 1) - fastest;
      if (leaver.gains[target] > leaver.gain) leaver.gain = leaver.gains[target], leaver.to = target;
    }
    return leaver;
  }

  // One cycle, cut short and closed where that gains most; false when there is no device to begin with.
  bool Cycle(double& total_gain) {
    int start = 0;
    for (int group = 1; group < stages_; ++group) {
      if (LeaverOf(group).gain > LeaverOf(start).gain) start = group;
    }
    std::vector<Move> moves;
    for (int from = start; moves.size() < groups_.size();) {
      const Leaver leaver = LeaverOf(from);
      // A group without a device to give passes the one it has just got on to where the cycle began.
      if (leaver.device < 0 && moves.empty()) return false;
      const int device = leaver.device < 0 ? moves.back().device : leaver.device, to = leaver.device < 0 ? start : leaver.to;
      moves.push_back({device, from, leaver.gain, leaver.gains[start]});
      groups_[device] = to;
      locked_[device] = true;
      visited_[to] = true;
      from = to;
      if (to == start) break;
    }
    double gain = 0, best_gain = 0;
    size_t last = 0;  // the move that closes the cycle
    for (size_t i = 1; i < moves.size(); ++i) {
      gain += moves[i - 1].gain;
      if (gain + moves[i].closing_gain > best_gain) best_gain = gain + moves[i].closing_gain, last = i;
    }
    for (size_t i = moves.size(); i-- > last + 1;) groups_[moves[i].device] = moves[i].from;
    groups_[moves[last].device] = start;
    total_gain += best_gain;
    return true;
  }

  const GridProblem& problem_;
  const int stages_;
  Groups groups_;
  std::vector<bool> locked_, visited_;
};

Grid RandomPartition(const GridProblem& problem, Rng& rng) {
  std::vector<int> devices(problem.devices());
  std::iota(devices.begin(), devices.end(), 0);
  rng.Shuffle(devices);
  Grid partition(problem.stages());
  for (size_t i = 0; i < devices.size(); ++i) partition[i / problem.pipelines()].push_back(devices[i]);
  return partition;
}

}  // namespace

GridPlan RandomGrid(const GridProblem& problem, uint64_t seed) {
  Rng rng(seed);
  GridPlan plan{.grid = RandomPartition(problem, rng), .evaluations = 1};
  plan.cost = ScoreGrid(problem, plan.grid);
  return plan;
}

GridPlan Evolve(const GridProblem& problem, uint64_t seed, const EvolutionOptions& options) {
  struct Member {
    Groups groups;
    double cost = 0;
  };
  Rng rng(seed);
  GridPlan plan;
  std::vector<Member> population;
  const auto judged = [&](Groups groups) {
    ++plan.evaluations;
    const double cost = PartitionCost(problem, PartitionOf(groups, problem.stages()));
    return Member{std::move(groups), cost};
  };
  const int size = std::max(options.population, 2);
  for (int i = 0; i < size; ++i) {
    Groups groups(problem.devices());
    const Grid partition = RandomPartition(problem, rng);
    for (int stage = 0; stage < problem.stages(); ++stage) {
      for (const int device : partition[stage]) groups[device] = stage;
    }
    population.push_back(judged(std::move(groups)));
  }
  for (int trial = 0; trial < options.trials && problem.stages() > 1; ++trial) {
    Member &mother = population[rng.Below(size)], &father = population[rng.Below(size)];
    Groups child = Cross(mother.groups, father.groups, problem.pipelines(), rng);
    for (int round = 0; round < options.rounds; ++round) child = CyclicMoves(problem, std::move(child)).Improved();
    Member member = judged(std::move(child));
    Member& worse = mother.cost > father.cost ? mother : father;
    if (member.cost <= worse.cost) worse = std::move(member);
  }
  const auto best = std::min_element(population.begin(), population.end(), [](const auto& a, const auto& b) { return a.cost < b.cost; });
  plan.grid = OrderPartition(problem, PartitionOf(best->groups, problem.stages()));
  plan.cost = ScoreGrid(problem, plan.grid);
  return plan;
}

}  // namespace fusionllm::scheduler::grid
