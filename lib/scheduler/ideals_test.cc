// Order ideals, cuts over them, and plans that need another order of the ops than the planner's own.
#include "lib/scheduler/ideals.h"

#include <algorithm>
#include <limits>
#include <random>
#include <string>
#include <variant>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/scheduler/closed_form.h"
#include "lib/scheduler/ideal_cuts.h"
#include "lib/scheduler/op_order.h"
#include "lib/scheduler/pipeline_model.h"
#include "lib/scheduler/planner.h"
#include "lib/scheduler/recost.h"
#include "lib/scheduler/reorder.h"
#include "lib/scheduler/testing/problems.h"
#include "lib/scheduler/testing/requests.h"

namespace fusionllm::scheduler {
namespace {

using testing::CostOf;
using ::testing::HasSubstr;
using testing::ProblemOf;

// Branches of unequal ops that part and join again, with tensors of unequal size: many orders, and no one of them has all good cuts.
PlanRequest Branching(uint64_t seed, int ops, int devices) {
  std::mt19937_64 draw(seed);
  const auto below = [&](int bound) { return static_cast<int>(draw() % static_cast<uint64_t>(bound)); };
  PlanRequest request{.micro_batches = 1 + below(8)};
  request.ops = {{.name = "data", .placeholder = true}};
  request.values = {{.name = "data", .producer = 0, .consumers = {1}, .bytes = 1'000, .lossless_only = true}};
  for (int i = 0; i < ops; ++i) {
    const double seconds = 0.01 * (1 + below(10));
    request.ops.push_back({.name = "op" + std::to_string(i), .flops = seconds, .forward_s = {seconds}, .backward_s = {2 * seconds}});
  }
  std::vector<std::vector<int>> readers(ops + 1);
  for (int op = 2; op <= ops; ++op) {
    const int first = std::max(1, op - 1 - below(3));  // one of the last three
    readers[first].push_back(op);
    const int second = std::max(1, op - 1 - below(3));
    if (second != first && below(3) == 0) readers[second].push_back(op);
  }
  for (int op = 1; op < ops; ++op) {
    if (readers[op].empty()) readers[op].push_back(ops);
    request.values.push_back({.name = request.ops[op].name,
                              .producer = op,
                              .consumers = readers[op],
                              .bytes = int64_t{1'000} << below(12),
                              .differentiable = true});
  }
  for (int d = 0; d < devices; ++d) testing::AddDevice(request, d % 2 == 0 ? "paris" : "tokyo", 1 + 0.5 * below(3));
  testing::LinkSites(request, 50e6, 1e-3, 5e6, 0.01);
  return request;
}

TEST(IdealsTest, OfAChainAreItsPrefixes) {
  PlanRequest request = testing::Chain({.ops = 6}, 1);
  testing::AddDevice(request, "lab", 1);
  const auto problem = ProblemOf(request);
  EXPECT_TRUE(IsOnlyOrder(request, problem->order()));
  const auto ideals = IdealsOf(*problem, 100);
  ASSERT_TRUE(ideals.has_value());
  ASSERT_EQ(ideals->size(), 7u) << "two placeholders and each of six ops";
  for (size_t i = 0; i < ideals->size(); ++i) {
    const int cut = problem->first_cut() - 1 + static_cast<int>(i);
    EXPECT_EQ((*ideals)[i].count, cut);
    EXPECT_EQ((*ideals)[i].bytes.lossy, i == 0 ? 0 : problem->LossyBytesAt(cut)) << i;
    EXPECT_EQ((*ideals)[i].bytes.gradient, i == 0 ? 0 : problem->GradientBytesAt(cut)) << i;
    EXPECT_EQ((*ideals)[i].bytes.lossless, problem->LosslessBytesAt(cut)) << i;
  }
  EXPECT_FALSE(IdealsOf(*problem, 6).has_value());
}

TEST(IdealsTest, OfTwoBranchesAreThePairsOfTheirPrefixes) {
  PlanRequest request;
  for (const char* name : {"in", "a0", "a1", "a2", "b0", "b1", "join"})
    request.ops.push_back({.name = name, .forward_s = {1}, .backward_s = {1}});
  request.values = {
      {.name = "in", .producer = 0, .consumers = {1, 4}, .bytes = 1}, {.name = "a0", .producer = 1, .consumers = {2}, .bytes = 1},
      {.name = "a1", .producer = 2, .consumers = {3}, .bytes = 1},    {.name = "a2", .producer = 3, .consumers = {6}, .bytes = 1},
      {.name = "b0", .producer = 4, .consumers = {5}, .bytes = 1},    {.name = "b1", .producer = 5, .consumers = {6}, .bytes = 1}};
  testing::AddDevice(request, "lab", 1);
  const auto problem = ProblemOf(request);
  EXPECT_FALSE(IsOnlyOrder(request, problem->order()));
  EXPECT_EQ(IdealsOf(*problem, 100)->size(), 1u + 4 * 3 + 1) << "nothing, in with 0 to 3 of one and 0 to 2 of the other, all";
}

class OnRandomGraphs : public ::testing::TestWithParam<uint64_t> {};

// By the definition: a set of ops is an ideal when it holds what its ops read.
TEST_P(OnRandomGraphs, IdealsAreAllSetsThatHoldWhatTheyRead) {
  const PlanRequest request = Branching(GetParam(), 9, 2);
  const auto problem = ProblemOf(request);
  const int n = problem->positions();
  const auto ideals = IdealsOf(*problem, 1'000);
  ASSERT_TRUE(ideals.has_value());
  size_t found = 0;
  for (uint64_t set = 1; set < uint64_t{1} << n; set += 2) {  // with the placeholder
    CutTraffic bytes;
    bool closed = true;
    for (const ChainValue& value : problem->values()) {
      const bool made = (set >> value.producer & 1) != 0;
      bool read_later = false;
      for (const int consumer : value.consumers) {
        const bool read = (set >> consumer & 1) != 0;
        closed = closed && (made || !read);
        read_later = read_later || !read;
      }
      if (!made || !read_later) continue;
      (value.lossless_only ? bytes.lossless : bytes.lossy) += value.bytes;
      if (value.differentiable) bytes.gradient += value.bytes;
    }
    const auto ideal = std::find_if(ideals->begin(), ideals->end(), [&](const Ideal& i) { return i.ops[0] == set; });
    ASSERT_EQ(ideal != ideals->end(), closed) << set;
    if (!closed) continue;
    ++found;
    EXPECT_EQ(ideal->bytes.lossy, bytes.lossy);
    EXPECT_EQ(ideal->bytes.lossless, bytes.lossless);
    EXPECT_EQ(ideal->bytes.gradient, bytes.gradient);
  }
  EXPECT_EQ(ideals->size(), found) << "none twice";
  for (size_t i = 1; i < ideals->size(); ++i) EXPECT_GE((*ideals)[i].count, (*ideals)[i - 1].count);
}

// Every way to give ops to three stages in a row, by the closed form written out.
TEST_P(OnRandomGraphs, CutsOverIdealsAreTheBestThereAre) {
  const PlanRequest request = Branching(GetParam(), 8, 3);
  const auto problem = ProblemOf(request);
  const int n = problem->positions();
  constexpr int kStages = 3;
  const std::vector<int> devices = {0, 1, 2};
  double best_s = std::numeric_limits<double>::infinity();
  for (int code = 0; code < 6561; ++code) {  // 3^8
    std::vector<int> stage(n, 0);
    for (int p = 1, rest = code; p < n; ++p, rest /= kStages) stage[p] = rest % kStages;
    double sum_s = 0, slowest_s = 0;
    std::vector<double> seconds(kStages, 0);
    std::vector<int> ops(kStages, 0);
    std::vector<CutTraffic> alive(kStages);  // before each stage
    bool possible = true;
    for (int p = 1; p < n; ++p) {
      seconds[stage[p]] += problem->ForwardSeconds(p, p + 1, stage[p]) + problem->BackwardSeconds(p, p + 1, stage[p]);
      ++ops[stage[p]];
    }
    for (const ChainValue& value : problem->values()) {
      int last = stage[value.producer];
      for (const int consumer : value.consumers) {
        possible = possible && stage[consumer] >= stage[value.producer];
        last = std::max(last, stage[consumer]);
      }
      for (int s = stage[value.producer] + 1; s <= last; ++s) {
        (value.lossless_only ? alive[s].lossless : alive[s].lossy) += value.bytes;
        if (value.differentiable) alive[s].gradient += value.bytes;
      }
    }
    if (!possible || *std::min_element(ops.begin(), ops.end()) == 0) continue;
    for (int s = 0; s < kStages; ++s) {
      sum_s += seconds[s];
      slowest_s = std::max(slowest_s, seconds[s]);
      if (s == 0) continue;
      const ClosedForm::Crossing crossing = ClosedForm(*problem).CrossingOf(alive[s], s - 1, s, std::numeric_limits<double>::infinity());
      sum_s += crossing.seconds();
      slowest_s = std::max({slowest_s, crossing.forward_s, crossing.backward_s});
    }
    best_s = std::min(best_s, FillPlusBottleneck(sum_s, slowest_s, request.micro_batches));
  }
  const auto cuts = CutOverIdeals(*problem, *IdealsOf(*problem, 1'000), devices, 10);
  ASSERT_FALSE(cuts.empty());
  EXPECT_GE(cuts[0].estimate_s, best_s * (1 - 1e-9));
  EXPECT_LE(cuts[0].estimate_s, best_s * 1.04);
}

// Where another order is worth it the plan takes it, and everybody who is shown the plan can read it.
TEST_P(OnRandomGraphs, OpFenceIsNoSlowerThanAlongItsOwnOrder) {
  PlanRequest request = Branching(GetParam(), 14, 4);
  request.search_budget = 2'000;
  const PlannedPipeline free = std::get<PlannedPipeline>(*MakePlan("op-fence", request));
  PlanRequest along = request;
  along.order = OrderOps(request);
  const PlannedPipeline own = std::get<PlannedPipeline>(*MakePlan("op-fence", along));
  EXPECT_LE(free.predicted_step_s, own.predicted_step_s * (1 + 1e-9));
  for (const LowerBound& bound : free.lower_bounds) EXPECT_LE(bound.seconds, free.predicted_step_s * (1 + 1e-9)) << bound.name;
  const auto refit = RecostPlan(request, free, RecostMode::kCodecsAndDepths);
  ASSERT_TRUE(refit.ok()) << refit.status();
  EXPECT_EQ(refit->predicted_step_s, free.predicted_step_s);
  const auto near = PlanFromWarmStart(request, StagesOf(free));
  ASSERT_TRUE(near.ok()) << near.status();
  EXPECT_LE(std::get<PlannedPipeline>(*near).predicted_step_s, free.predicted_step_s * (1 + 1e-9));
}

INSTANTIATE_TEST_SUITE_P(Seeds, OnRandomGraphs, ::testing::Range(uint64_t{1}, uint64_t{25}));

TEST(ReorderTest, SomeGraphsAreWorthAnotherOrder) {
  int better = 0;
  for (uint64_t seed = 1; seed < 25; ++seed) {
    PlanRequest request = Branching(seed, 14, 4);
    request.search_budget = 2'000;
    PlanRequest along = request;
    along.order = OrderOps(request);
    const PlannedPipeline free = std::get<PlannedPipeline>(*MakePlan("op-fence", request)),
                          own = std::get<PlannedPipeline>(*MakePlan("op-fence", along));
    better += free.predicted_step_s < 0.98 * own.predicted_step_s;
  }
  EXPECT_GT(better, 0) << "these tests would say nothing";
}

TEST(ReorderTest, ASearchAlongOneOrderOfSeveralProvesNothing) {
  PlanRequest request = Branching(3, 8, 3);
  ASSERT_FALSE(IsOnlyOrder(request, OrderOps(request)));
  const PlannedPipeline plan = std::get<PlannedPipeline>(*MakePlan("exact", request));
  const auto search =
      std::find_if(plan.lower_bounds.begin(), plan.lower_bounds.end(), [](const LowerBound& bound) { return bound.name == "search"; });
  ASSERT_NE(search, plan.lower_bounds.end());
  EXPECT_FALSE(search->holds);
  EXPECT_THAT(search->why, HasSubstr("which has others"));
}

TEST(ReorderTest, ExactIsNeverWorseThanOpFenceWhereThereAreOtherOrders) {
  int others = 0;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    const PlanRequest request = Branching(seed, 10, 3);
    const absl::StatusOr<PlanOutcome> exact = MakePlan("exact", request), fence = MakePlan("op-fence", request);
    ASSERT_TRUE(exact.ok() && fence.ok()) << seed;
    if (!std::holds_alternative<PlannedPipeline>(*exact) || !std::holds_alternative<PlannedPipeline>(*fence)) continue;
    const PlannedPipeline &proven = std::get<PlannedPipeline>(*exact), &found = std::get<PlannedPipeline>(*fence);
    EXPECT_LE(CostOf(proven), CostOf(found) * (1 + 1e-9)) << seed;
    PlanRequest along = request;
    along.order = OrderOps(request);
    others += CostOf(std::get<PlannedPipeline>(*MakePlan("exact", along))) > CostOf(proven) * (1 + 1e-9);
  }
  EXPECT_GT(others, 0) << "this test would say nothing";
}

TEST(ReorderTest, AnOrderThatIsNoneIsRefused) {
  PlanRequest request = Branching(1, 5, 2);
  const auto error = [&](std::vector<int> order) {
    request.order = std::move(order);
    return std::string(MakePlan("op-fence", request).status().message());
  };
  EXPECT_THAT(error({0, 1, 2, 3, 4}), HasSubstr("order: it has 5 of 6 ops"));
  EXPECT_THAT(error({0, 1, 2, 3, 4, 4}), HasSubstr("stands in it twice"));
  EXPECT_THAT(error({0, 2, 1, 3, 4, 5}), HasSubstr("stands before op op0, which it reads"));
  EXPECT_THAT(error({1, 0, 2, 3, 4, 5}), HasSubstr("placeholders come first"));
  EXPECT_THAT(error({0, 1, 2, 3, 4, 9}), HasSubstr("order: op 9"));
}

}  // namespace
}  // namespace fusionllm::scheduler
