#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "lib/scheduler/grid/bottleneck_matching.h"
#include "lib/scheduler/grid/grid_search.h"
#include "lib/scheduler/grid/kind_costs.h"
#include "lib/scheduler/grid/rng.h"
#include "lib/scheduler/grid/testing/scenarios.h"

namespace fusionllm::scheduler::grid {
namespace {

using ::testing::HasSubstr;

// Links between any two devices are drawn alone, so that nothing about them is regular.
GridProblem RandomProblem(uint64_t seed, int stages, int pipelines) {
  Rng rng(seed);
  const size_t n = static_cast<size_t>(stages) * pipelines;
  Network network;
  network.delay_ms.assign(n, std::vector<double>(n));
  network.bandwidth_gbps = network.delay_ms;
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j) {
      network.delay_ms[i][j] = rng.Below(200);
      network.bandwidth_gbps[i][j] = 0.1 + rng.Below(40) * 0.1;
    }
  }
  return *GridProblem::Create(network, {stages, pipelines, 0.5, 0.25});
}

double BestMatchingByTrial(const GridProblem& problem, const std::vector<int>& a, std::vector<int> b) {
  std::sort(b.begin(), b.end());
  double best = std::numeric_limits<double>::infinity();
  do {
    double slowest = 0;
    for (size_t i = 0; i < a.size(); ++i) slowest = std::max(slowest, problem.boundary_s(a[i], b[i]));
    best = std::min(best, slowest);
  } while (std::next_permutation(b.begin(), b.end()));
  return best;
}

TEST(GridProblem, CostsFollowThePapersFormulas) {
  Network network{.delay_ms = {{0, 10}, {30, 0}}, .bandwidth_gbps = {{0, 1}, {3, 0}}};  // the mean: 20 ms, 2 Gbit/s
  const GridProblem row = *GridProblem::Create(network, {1, 2, 3, 5});
  EXPECT_DOUBLE_EQ(row.peer_s(0, 1), 2 * (0.020 + 3.0 / 2 * 8 / 2));
  EXPECT_DOUBLE_EQ(row.boundary_s(1, 0), 2 * (0.020 + 5.0 * 8 / 2));
  EXPECT_DOUBLE_EQ(ScoreGrid(row, {{0, 1}}).data_parallel_s, row.peer_s(0, 1));
  EXPECT_EQ(ScoreGrid(row, {{0, 1}}).pipeline_s, 0);
  const GridProblem column = *GridProblem::Create(network, {2, 1, 3, 5});
  EXPECT_EQ(ScoreGrid(column, {{0}, {1}}).data_parallel_s, 0);
  EXPECT_DOUBLE_EQ(ScoreGrid(column, {{0}, {1}}).pipeline_s, column.boundary_s(0, 1));
}

TEST(GridProblem, NamesWhatIsWrong) {
  const Network good{.delay_ms = {{0, 1}, {1, 0}}, .bandwidth_gbps = {{0, 1}, {1, 0}}};
  const auto words = [](const Network& network, const Shape& shape) {
    const auto problem = GridProblem::Create(network, shape);
    return problem.ok() ? std::string("fine") : std::string(problem.status().message());
  };
  EXPECT_EQ(words(good, {2, 1, 1, 1}), "fine");
  EXPECT_THAT(words(good, {2, 2, 1, 1}), HasSubstr("2 stages of 2 pipelines do not make the network's 2 devices"));
  EXPECT_THAT(words(good, {1 << 30, 1 << 30, 1, 1}), HasSubstr("do not make"));
  EXPECT_THAT(words(good, {2, 1, -1, 1}), HasSubstr("gradients"));
  EXPECT_THAT(words(good, {2, 1, 1, std::nan("")}), HasSubstr("activations"));
  EXPECT_THAT(words({}, {1, 1, 1, 1}), HasSubstr("has 0"));
  Network bad = good;
  bad.bandwidth_gbps[0][1] = 0;
  EXPECT_THAT(words(bad, {2, 1, 1, 1}), HasSubstr("bandwidth_gbps[0][1] must be a positive number, got 0"));
  bad = good;
  bad.delay_ms[1][0] = std::numeric_limits<double>::infinity();
  EXPECT_THAT(words(bad, {2, 1, 1, 1}), HasSubstr("delay_ms[1][0]"));
  bad = good;
  bad.delay_ms[1].pop_back();
  EXPECT_THAT(words(bad, {2, 1, 1, 1}), HasSubstr("delay_ms[1] has 1 entries"));
}

TEST(GridProblem, AGridMustHoldEveryDeviceOnce) {
  const GridProblem problem = RandomProblem(1, 2, 2);
  EXPECT_TRUE(CheckGrid(problem, {{0, 3}, {2, 1}}).ok());
  EXPECT_THAT(std::string(CheckGrid(problem, {{0, 3}}).message()), HasSubstr("1 rows"));
  EXPECT_THAT(std::string(CheckGrid(problem, {{0, 3}, {2}}).message()), HasSubstr("row 1"));
  EXPECT_THAT(std::string(CheckGrid(problem, {{0, 3}, {2, 4}}).message()), HasSubstr("device 4"));
  EXPECT_THAT(std::string(CheckGrid(problem, {{0, 3}, {2, 0}}).message()), HasSubstr("device 0 is in the grid twice"));
}

TEST(BottleneckMatching, IsTheBestOfAllMatchings) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    const GridProblem problem = RandomProblem(seed, 2, 5);
    const std::vector<int> a = {0, 1, 2, 3, 4}, b = {5, 6, 7, 8, 9};
    BottleneckMatching matching(problem);
    const double best = BestMatchingByTrial(problem, a, b);
    EXPECT_EQ(matching.Solve(a, b), best) << "seed " << seed;
    const std::vector<int> matched = matching.Matched(b);
    EXPECT_TRUE(std::is_permutation(matched.begin(), matched.end(), b.begin())) << "seed " << seed;
    double slowest = 0;
    for (size_t i = 0; i < a.size(); ++i) slowest = std::max(slowest, problem.boundary_s(a[i], matched[i]));
    EXPECT_EQ(slowest, best) << "seed " << seed;
    EXPECT_GT(matching.Solve(a, b, best / 2), best / 2) << "a limit below the answer is exceeded, seed " << seed;
    EXPECT_EQ(matching.Solve(a, b, best), best) << "seed " << seed;
  }
}

TEST(BottleneckMatching, WorksBeyondOneWordOfBits) {
  const GridProblem problem = RandomProblem(7, 2, 70);
  std::vector<int> a(70), b(70);
  std::iota(a.begin(), a.end(), 0);
  std::iota(b.begin(), b.end(), 70);
  BottleneckMatching matching(problem);
  const double value = matching.Solve(a, b);
  const std::vector<int> matched = matching.Matched(b);
  EXPECT_TRUE(std::is_permutation(matched.begin(), matched.end(), b.begin()));
  double slowest = 0;
  for (size_t i = 0; i < a.size(); ++i) slowest = std::max(slowest, problem.boundary_s(a[i], matched[i]));
  EXPECT_EQ(slowest, value);
}

// Asked first with a limit that it exceeds and then without: what is remembered must not pass a lower bound for the answer.
TEST(KindCosts, AreThoseOfTheDevices) {
  const GridProblem problem = *GridProblem::Create(IrregularNetwork(3), StudyShape());
  KindCosts costs(problem);
  Rng rng(5);
  std::vector<int> devices(problem.devices());
  std::iota(devices.begin(), devices.end(), 0);
  BottleneckMatching matching(problem);
  for (int round = 0; round < 50; ++round) {
    rng.Shuffle(devices);
    Grid rows(2);
    std::vector<std::vector<int>> kinds(2);
    uint64_t keys[2] = {0, 0};
    for (int i = 0; i < 2 * problem.pipelines(); ++i) {
      rows[i % 2].push_back(devices[i]);
      kinds[i % 2].push_back(costs.kind(devices[i]));
      keys[i % 2] += costs.number(kinds[i % 2].back());
    }
    EXPECT_NEAR(costs.StageSeconds(keys[0], kinds[0]), ScoreGrid(problem, {rows[0]}).data_parallel_s, 1e-12);
    const double seconds = matching.Solve(rows[0], rows[1]);
    const double bound_s = costs.BoundarySeconds(keys[0], kinds[0], keys[1], kinds[1], seconds * 0.9);
    EXPECT_GT(bound_s, seconds * 0.9);
    EXPECT_LE(bound_s, seconds);
    EXPECT_EQ(costs.BoundarySeconds(keys[0], kinds[0], keys[1], kinds[1], seconds), seconds);
    EXPECT_EQ(costs.BoundarySeconds(keys[1], kinds[1], keys[0], kinds[0], seconds * 2), seconds);
  }
}

TEST(CheapestPath, IsExactForFewNodesAndAPathForMany) {
  for (const int n : {1, 2, 3, 7, 20}) {
    Rng rng(static_cast<uint64_t>(n));
    std::vector<double> weights(static_cast<size_t>(n) * n);
    for (int i = 0; i < n; ++i) {
      for (int j = 0; j < i; ++j) weights[i * n + j] = weights[j * n + i] = rng.Uniform();
    }
    const Path path = CheapestPath(weights, n);
    std::vector<int> order(n);
    std::iota(order.begin(), order.end(), 0);
    EXPECT_TRUE(std::is_permutation(path.order.begin(), path.order.end(), order.begin()));
    const auto length = [&](const std::vector<int>& nodes) {
      double sum = 0;
      for (int i = 1; i < n; ++i) sum += weights[nodes[i - 1] * n + nodes[i]];
      return sum;
    };
    EXPECT_NEAR(path.length, length(path.order), 1e-12);
    if (n > 7) {
      EXPECT_LT(path.length, length(order)) << "not even better than any order";
      continue;
    }
    double best = std::numeric_limits<double>::infinity();
    do best = std::min(best, length(order));
    while (std::next_permutation(order.begin(), order.end()));
    EXPECT_NEAR(path.length, best, 1e-12) << n << " nodes";
  }
}

TEST(GridSearch, EveryPlannerAnswersWithAWholeGridAndItsCost) {
  for (const auto& [stages, pipelines] : {std::pair(1, 1), std::pair(1, 6), std::pair(6, 1), std::pair(3, 4), std::pair(14, 3)}) {
    const GridProblem problem = RandomProblem(3, stages, pipelines);
    for (const GridPlan& plan : {RandomGrid(problem, 5), Evolve(problem, 5, {.population = 6, .trials = 30}),
                                 FenceGrid(problem, 5, {.starts = 2, .evaluations = 500})}) {
      EXPECT_TRUE(CheckGrid(problem, plan.grid).ok()) << CheckGrid(problem, plan.grid);
      EXPECT_EQ(plan.cost.total_s(), ScoreGrid(problem, plan.grid).total_s());
      EXPECT_GT(plan.evaluations, 0);
    }
  }
}

TEST(GridSearch, TheSameSeedGivesTheSameGrid) {
  const GridProblem problem = *GridProblem::Create(IrregularNetwork(2), StudyShape());
  const FenceOptions quick{.starts = 2, .evaluations = 2000};
  EXPECT_EQ(FenceGrid(problem, 9, quick).grid, FenceGrid(problem, 9, quick).grid);
  EXPECT_EQ(Evolve(problem, 9, {.trials = 50}).grid, Evolve(problem, 9, {.trials = 50}).grid);
  EXPECT_NE(RandomGrid(problem, 9).grid, RandomGrid(problem, 10).grid);
}

// All grids of six devices as three stages of two: the search finds the best.
TEST(GridSearch, FindsTheOptimumOfTinyProblems) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const GridProblem problem = RandomProblem(seed, 3, 2);
    std::vector<int> deal = {0, 1, 2, 3, 4, 5};
    double best = std::numeric_limits<double>::infinity();
    do best = std::min(best, ScoreGrid(problem, {{deal[0], deal[1]}, {deal[2], deal[3]}, {deal[4], deal[5]}}).total_s());
    while (std::next_permutation(deal.begin(), deal.end()));
    EXPECT_NEAR(FenceGrid(problem, seed, {.starts = 4, .evaluations = 3000}).cost.total_s(), best, 1e-12) << "seed " << seed;
  }
}

TEST(GridSearch, ReachesTheBestKnownCostOfTheStudysNetworks) {
  for (const Scenario& scenario : StudyScenarios()) {
    const GridProblem problem = *GridProblem::Create(scenario.network, StudyShape());
    EXPECT_NEAR(FenceGrid(problem, 1).cost.total_s(), scenario.best_known_s, 0.0006) << scenario.network.name;
  }
}

// The rival is no straw man: on the study's networks it finds what the paper's own search is known to find, the spot case included, where
// both stay far above the optimum.
TEST(GridSearch, TheEvolutionarySearchReachesItsPublishedCosts) {
  const std::vector<double> published = {3.440, 49.500, 16.086, 34.799, 49.216};
  const std::vector<Scenario> scenarios = StudyScenarios();
  for (size_t i = 0; i < scenarios.size(); ++i) {
    const GridProblem problem = *GridProblem::Create(scenarios[i].network, StudyShape());
    EXPECT_LE(Evolve(problem, 1).cost.total_s(), published[i] + 0.0006) << scenarios[i].network.name;
  }
}

// Uneven groups of cities: most good layouts repeat a stage, so a single device cannot change without making two boundaries dear.
// docs/results/dt-fm.md has more networks.
TEST(GridSearch, IsFarBelowTheEvolutionarySearchOnIrregularNetworks) {
  for (const uint64_t seed : {2, 3}) {
    const GridProblem problem = *GridProblem::Create(IrregularNetwork(seed), StudyShape());
    EXPECT_LE(FenceGrid(problem, 1).cost.total_s(), 0.88 * Evolve(problem, 1).cost.total_s()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace fusionllm::scheduler::grid
