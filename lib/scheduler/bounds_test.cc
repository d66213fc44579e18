// Bounds: what they are by hand, and that nothing beats them.
#include "lib/scheduler/bounds.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/scheduler/planner.h"
#include "lib/scheduler/testing/problems.h"
#include "lib/scheduler/testing/requests.h"
#include "lib/scheduler/testing/small_instances.h"

namespace fusionllm::scheduler {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::ProblemOf;

LowerBound Bound(const PlanRequest& request, const std::string& name) {
  for (const LowerBound& bound : LowerBounds(*ProblemOf(request))) {
    if (bound.name == name) return bound;
  }
  ADD_FAILURE() << "no bound " << name;
  return {};
}

// Four ops of 0.3 s a micro-batch on devices of which the second takes twice as long; 1 MB between ops, four micro-batches.
PlanRequest FourOps() {
  PlanRequest request = testing::Chain({.ops = 4, .op_s = 0.1, .cut_bytes = 1'000'000}, 4);
  testing::AddDevice(request, "paris", 1);
  testing::AddDevice(request, "paris", 2);
  testing::AddDevice(request, "tokyo", 1);
  testing::LinkSites(request, 1e7, 1e-3, 1e6, 1e-2);
  return request;
}

TEST(BoundsTest, ComputeBoundsAreThoseOfTheJob) {
  const PlanRequest request = FourOps();
  EXPECT_NEAR(Bound(request, "work").seconds, 4 * 4 * 0.3 / 2.5, 1e-6);
  EXPECT_NEAR(Bound(request, "largest-op").seconds, 4 * 0.3, 1e-6);
  EXPECT_THAT(Bound(request, "largest-op").why, HasSubstr("paris-0"));
  EXPECT_NEAR(Bound(request, "longest-path").seconds, 4 * 0.3, 1e-6);
}

TEST(BoundsTest, WhereADeviceMayRunAloneNothingIsSaidOfLinks) {
  for (const char* name : {"cut-bytes", "spanning-tree"}) {
    const LowerBound bound = Bound(FourOps(), name);
    EXPECT_FALSE(bound.holds) << name;
    EXPECT_EQ(bound.seconds, 0) << name;
    EXPECT_FALSE(bound.why.empty()) << name;
  }
}

TEST(BoundsTest, SeveralStagesMustSendOverTheBestLink) {
  PlanRequest request = FourOps();
  request.stages = 2;
  EXPECT_TRUE(Bound(request, "cut-bytes").holds);
  EXPECT_NEAR(Bound(request, "cut-bytes").seconds, 4 * 1e6 / 1e7, 1e-6);
  EXPECT_FALSE(Bound(request, "spanning-tree").holds);
}

TEST(BoundsTest, AJobThatNoDeviceHoldsAloneMustSend) {
  PlanRequest request = FourOps();
  request.memory_headroom = 0;
  const std::unique_ptr<Problem> roomy = ProblemOf(request);
  const auto whole = static_cast<double>(roomy->StandaloneBytes(0, roomy->positions()));
  ASSERT_GT(whole, 1000);
  const auto with = [&](double share) {
    for (Device& device : request.devices)
      device.memory_bytes = static_cast<int64_t>(std::ceil(whole * share)) + request.memory_reserve_bytes;
    return Bound(request, "cut-bytes");
  };
  EXPECT_FALSE(with(1).holds);
  EXPECT_THAT(with(1).why, HasSubstr("does not rule out"));
  EXPECT_TRUE(with(0.6).holds);
  EXPECT_NEAR(with(0.6).seconds, 4 * 1e6 / 1e7, 1e-6);
  EXPECT_THAT(with(0.6).why, AllOf(HasSubstr("2 stages at least, since the job needs "), HasSubstr("with one micro-batch in flight")));
  EXPECT_THAT(with(0.4).why, HasSubstr("3 stages at least"));
  EXPECT_FALSE(with(0.2).holds) << "there is no plan";
  request.stages = 3;
  EXPECT_THAT(with(0.6).why, AllOf(HasSubstr("3 stages at least"), Not(HasSubstr("since"))));
  request.stages = 0;
  request.memory_is_lowered = true;  // for a search: it may have more
  EXPECT_FALSE(with(0.6).holds);
  request.memory_is_lowered = false;
  request.recompute_is_a_choice = true;  // the other way may take less
  EXPECT_FALSE(with(0.6).holds);
}

TEST(BoundsTest, AllDevicesMustBeJoinedByTheirBestLinks) {
  PlanRequest request = FourOps();
  request.use_all_devices = true;
  EXPECT_TRUE(Bound(request, "spanning-tree").holds);
  EXPECT_NEAR(Bound(request, "spanning-tree").seconds, 4 * 1e6 / 1e6, 1e-6);  // tokyo is reached at 1 MB/s
}

// An op that hardly sends anything may be what a stage has: one such op takes one stage, and the others still send much.
TEST(BoundsTest, ASmallTensorServesOneStageOnly) {
  PlanRequest request = FourOps();
  for (ValueNode& value : request.values) {
    if (value.producer == static_cast<int>(request.ops.size()) - 2) value.bytes = 10;
  }
  request.stages = 2;
  EXPECT_LT(Bound(request, "cut-bytes").seconds, 1e-3);
  request.stages = 3;
  EXPECT_NEAR(Bound(request, "cut-bytes").seconds, 4 * 1e6 / 1e7, 1e-6);
}

TEST(BoundsTest, CodecsMakeThemSmaller) {
  PlanRequest request = FourOps();
  const CodecLevelPolicy ladder({{"fp32", 1, 1, 0}, {"topk", 16, 10, 1e-3}});
  request.codec_policy = &ladder;
  request.use_all_devices = true;
  EXPECT_NEAR(Bound(request, "spanning-tree").seconds, 4 * 1e6 / 16 / 1e6, 1e-6);
}

TEST(BoundsTest, APlanNamesTheBoundThatBinds) {
  PlanRequest request = FourOps();
  request.use_all_devices = true;
  const PlannedPipeline plan = std::get<PlannedPipeline>(*MakePlan("equal-ops", request));
  const LowerBound* binding = BindingBound(plan.lower_bounds);
  ASSERT_NE(binding, nullptr);
  EXPECT_EQ(binding->name, "spanning-tree");
  EXPECT_EQ(plan.lower_bound_s, binding->seconds);
  EXPECT_THAT(plan.explain, Contains(HasSubstr("by the bound spanning-tree: all 3 devices must be used")));
}

TEST(BoundsTest, ExactProvesItsOwn) {
  const PlannedPipeline plan = std::get<PlannedPipeline>(*MakePlan("exact", FourOps()));
  EXPECT_EQ(BindingBound(plan.lower_bounds)->name, "search");
  EXPECT_EQ(plan.gap, 0);
}

TEST(BoundsTest, ASearchProvesNothingThatItDidNotSearch) {
  const auto search = [](const PlanRequest& request) { return std::get<PlannedPipeline>(*MakePlan("exact", request)).lower_bounds.back(); };
  PlanRequest request = FourOps();
  const CodecLevelPolicy ladder({{"fp32", 1, 1, 0}, {"topk", 16, 10, 1e-3}});
  request.codec_policy = &ladder;
  EXPECT_EQ(search(request).name, "search");
  EXPECT_FALSE(search(request).holds);
  EXPECT_THAT(search(request).why, HasSubstr("lose more may have shorter steps"));
  request = FourOps();
  request.memory_is_lowered = true;
  EXPECT_FALSE(search(request).holds);
  request = FourOps();
  request.recompute_is_a_choice = true;
  EXPECT_FALSE(search(request).holds);
}

// With recomputation a step computes more; where it is a choice the bounds are those of the job without.
TEST(BoundsTest, BoundsHoldWithAndWithoutRecomputationWhereItIsAChoice) {
  PlanRequest request = FourOps();
  const double without_s = Bound(request, "work").seconds;
  request.recompute = true;
  EXPECT_GT(Bound(request, "work").seconds, without_s);
  request.recompute_is_a_choice = true;
  EXPECT_EQ(Bound(request, "work").seconds, without_s);
}

// Codecs depend on what a plan's links have to hide behind, so that one that loses more may be the fastest.
TEST(BoundsTest, NoPlannerIsFasterThanABoundOfAnothersPlan) {
  const CodecLevelPolicy ladder({{"fp32", 1, 1, 0}, {"fp16", 2, 2, 1e-3}, {"int8", 4, 4, 2e-2}, {"topk", 16, 16, 1e-1}});
  int beaten = 0, proven = 0;
  for (uint64_t seed = 1; seed <= 80; ++seed) {
    PlanRequest request = testing::DrawSmallInstance(seed, {.max_ops = 8, .max_devices = 4}).request;
    const bool adaptive = seed % 5 != 0;
    request.codec_policy = adaptive ? &ladder : nullptr;
    std::vector<PlannedPipeline> plans;
    for (const absl::string_view planner : PlannerNames()) {
      for (uint64_t draw = 1; draw <= (planner == "random" ? 4 : 1); ++draw) {
        request.seed = draw;
        const absl::StatusOr<PlanOutcome> outcome = MakePlan(planner, request);
        ASSERT_TRUE(outcome.ok()) << outcome.status();
        if (const auto* plan = std::get_if<PlannedPipeline>(&*outcome)) plans.push_back(*plan);
      }
    }
    for (const PlannedPipeline& plan : plans) {
      for (const LowerBound& bound : plan.lower_bounds) {
        proven += bound.holds && bound.name == "search";
        for (const PlannedPipeline& other : plans) {
          beaten += bound.name == "search" && other.predicted_step_s < plan.predicted_step_s * (1 - 1e-9);
          if (!bound.holds) continue;
          EXPECT_GE(other.predicted_step_s, bound.seconds * (1 - 1e-9))
              << "seed " << seed << ": " << other.strategy << " against the bound " << bound.name << " of " << plan.strategy;
        }
      }
    }
  }
  EXPECT_GT(beaten, 0) << "this test would say nothing";
  EXPECT_GT(proven, 0) << "nor would it of searches";
}

TEST(BoundsTest, AlternativesAreWeighedWhenAsked) {
  PlanRequest request = FourOps();
  request.stages = 2;
  EXPECT_THAT(std::get<PlannedPipeline>(*MakePlan("op-fence", request)).explain, Not(Contains(HasSubstr("why stage"))));
  request.weigh_alternatives = true;
  const PlannedPipeline plan = std::get<PlannedPipeline>(*MakePlan("op-fence", request));
  EXPECT_THAT(plan.explain, Contains(HasSubstr("why stage 1: cut before 'loss' (one op earlier: +")));
  EXPECT_THAT(plan.explain, Contains(HasSubstr("instead of")));
}

// The least simulated step of any assignment that is tried at random; infinite when none fits.
double MinStepOfRandomAssignments(const Problem& problem, uint64_t seed, int trials) {
  std::mt19937_64 draw(seed);
  Evaluator evaluator(problem);
  double min_s = std::numeric_limits<double>::infinity();
  for (int trial = 0; trial < trials; ++trial) {
    const int span = problem.max_stages() - problem.min_stages() + 1;
    const int stages = problem.min_stages() + static_cast<int>(draw() % static_cast<uint64_t>(span));
    Assignment assignment{.begins = {0}, .devices = problem.usable()};
    std::shuffle(assignment.devices.begin(), assignment.devices.end(), draw);
    assignment.devices.resize(stages);
    std::vector<int> cuts;
    for (int p = problem.first_cut(); p < problem.positions(); ++p) cuts.push_back(p);
    std::shuffle(cuts.begin(), cuts.end(), draw);
    assignment.begins.insert(assignment.begins.end(), cuts.begin(), cuts.begin() + stages - 1);
    std::sort(assignment.begins.begin(), assignment.begins.end());
    const Evaluation evaluation = evaluator.Evaluate(assignment, Effort::kFull);
    if (evaluation.feasible()) min_s = std::min(min_s, evaluation.step_s);
  }
  return min_s;
}

TEST(BoundsTest, NoPlanIsFasterThanABoundThatHolds) {
  std::map<std::string, int> held, binding;
  for (uint64_t seed = 1; seed <= 120; ++seed) {
    testing::SmallInstance instance = testing::DrawSmallInstance(seed, {.max_ops = 6, .max_devices = 4});
    // Constraints and links by which the bounds of links hold and bind more often than for users.
    if (seed % 2 == 0) {
      instance.request.use_all_devices = true;
      for (Link& link : instance.request.links) link.bytes_per_s *= 0.05;
    }
    if (seed % 4 == 1) instance.request.stages = 2;
    SCOPED_TRACE(::testing::Message() << "seed " << seed << ", " << instance.regime);
    const auto created = Problem::Create(instance.request);
    ASSERT_TRUE(created.ok()) << created.status();
    if (std::holds_alternative<PlanError>(*created)) continue;
    const Problem& problem = *std::get<std::unique_ptr<Problem>>(*created);
    double min_s = MinStepOfRandomAssignments(problem, seed, 50);
    for (const char* planner : {"exact", "equal-ops"}) {
      const absl::StatusOr<PlanOutcome> outcome = MakePlan(planner, instance.request);
      ASSERT_TRUE(outcome.ok()) << outcome.status();
      if (const auto* plan = std::get_if<PlannedPipeline>(&*outcome)) {
        EXPECT_GE(plan->gap, 0);
        EXPECT_LE(plan->lower_bound_s, plan->predicted_step_s);
        min_s = std::min(min_s, plan->predicted_step_s);
      }
    }
    const std::vector<LowerBound> bounds = LowerBounds(problem);
    for (const LowerBound& bound : bounds) {
      if (bound.holds) {
        EXPECT_LE(bound.seconds, min_s) << bound.name << ": " << bound.why;
      }
      held[bound.name] += bound.holds;
    }
    ++binding[BindingBound(bounds)->name];
  }
  EXPECT_GE(held["cut-bytes"], 60);
  EXPECT_GE(held["spanning-tree"], 40);
  for (const char* name : {"work", "largest-op", "longest-path", "spanning-tree"}) EXPECT_GE(binding[name], 2) << name;
}

}  // namespace
}  // namespace fusionllm::scheduler
