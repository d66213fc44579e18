#include "lib/scheduler/stage_annealing.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <variant>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/scheduler/planner.h"
#include "lib/scheduler/testing/problems.h"
#include "lib/scheduler/testing/requests.h"
#include "lib/scheduler/testing/small_instances.h"

namespace fusionllm::scheduler {

class StageAnnealingPeer {
 public:
  static void Start(StageAnnealing& annealing, const Assignment& start, double share) {
    annealing.share_ = annealing.problem_.request().schedule.forwards_first() ? 1 : share;
    annealing.Start(start);
  }
  static bool Move(StageAnnealing& annealing, double limit, grid::Rng& rng) {
    if (!annealing.Move(limit, rng)) return false;
    annealing.FindUnused();
    return true;
  }
  static double Energy(const StageAnnealing& annealing) { return annealing.Energy(); }
  // Of the same parts and target, with nothing that moves have carried along.
  static double RecomputedEnergy(StageAnnealing annealing) {
    for (StageAnnealing::Part& part : annealing.parts_) annealing.SetPart(part, part.begin, part.end, part.device);
    annealing.Total();
    annealing.exchange_s_ = annealing.ExchangeOfParts();
    return annealing.Energy();
  }
};

namespace {

using testing::ProblemOf;

constexpr int64_t kWork = 400'000;

void ExpectSoundAssignment(const Problem& problem, const Assignment& assignment) {
  ASSERT_EQ(assignment.begins.size(), assignment.devices.size());
  ASSERT_FALSE(assignment.begins.empty());
  EXPECT_EQ(assignment.begins[0], 0);
  for (size_t s = 1; s < assignment.begins.size(); ++s) EXPECT_GT(assignment.begins[s], assignment.begins[s - 1]);
  EXPECT_LT(assignment.begins.back(), problem.positions());
  if (assignment.begins.size() > 1) {
    EXPECT_GE(assignment.begins[1], problem.first_cut());
  }
  EXPECT_GE(static_cast<int>(assignment.devices.size()), problem.min_stages());
  EXPECT_LE(static_cast<int>(assignment.devices.size()), problem.max_stages());
  std::vector<int> devices = assignment.devices;
  std::sort(devices.begin(), devices.end());
  EXPECT_EQ(std::adjacent_find(devices.begin(), devices.end()), devices.end()) << "a device runs two stages";
}

// Three cities of four, declared in turns, so that the declared order crosses at every border.
PlanRequest CitiesInTurns(schedule::PipelineSchedule schedule) {
  PlanRequest request = testing::Chain({.ops = 96, .op_s = 0.004, .cut_bytes = 400'000}, 16);
  for (int round = 0; round < 4; ++round) {
    for (const char* site : {"paris", "tokyo", "quito"}) testing::AddDevice(request, site, 1 + 0.2 * round);
  }
  testing::JoinSites(request, 125e6, 1e-3, 2.5e6, 0.04);
  request.schedule = schedule;
  return request;
}

Assignment InDeclaredOrder(const Problem& problem, int stages) {
  Assignment assignment;
  for (int s = 0; s < stages; ++s) {
    assignment.begins.push_back(s * problem.positions() / stages);
    assignment.devices.push_back(problem.usable()[s]);
  }
  return assignment;
}

class StageAnnealingTest : public ::testing::TestWithParam<schedule::PipelineSchedule> {};

TEST_P(StageAnnealingTest, FindsOrdersThatTheSimulatorFindsMuchFaster) {
  const PlanRequest request = CitiesInTurns(GetParam());
  const auto problem = ProblemOf(request);
  const Assignment start = InDeclaredOrder(*problem, 12);
  Evaluator evaluator(*problem);
  StageAnnealing annealing(*problem, problem->usable());
  grid::Rng rng(1);
  const Assignment found = annealing.Run(start, 0.25, kWork, rng);
  ExpectSoundAssignment(*problem, found);
  EXPECT_GE(annealing.work(), kWork);
  EXPECT_LT(annealing.work(), 2 * kWork);
  const double start_s = evaluator.Evaluate(start, Effort::kFull).step_s, found_s = evaluator.Evaluate(found, Effort::kFull).step_s;
  EXPECT_LT(found_s, 0.6 * start_s);
}

TEST_P(StageAnnealingTest, TheSameDrawsGiveTheSameAssignment) {
  const PlanRequest request = CitiesInTurns(GetParam());
  const auto problem = ProblemOf(request);
  const Assignment start = InDeclaredOrder(*problem, 12);
  const auto run = [&](uint64_t seed) {
    grid::Rng rng(seed);
    return StageAnnealing(*problem, problem->usable()).Run(start, 0.4, kWork / 10, rng);
  };
  EXPECT_EQ(run(3), run(3));
}

INSTANTIATE_TEST_SUITE_P(Schedules, StageAnnealingTest, ::testing::Values(schedule::k1F1B, schedule::kGPipe));

TEST(StageAnnealingTest, KeepsToPinsMemoryAndTheNumberOfStages) {
  PlanRequest request = CitiesInTurns(schedule::k1F1B);
  request.stages = 5;
  request.pins = {{"op20", "tokyo-0"}};
  for (Device& device : request.devices) device.memory_bytes = 220'000'000;  // no device holds more than half
  const auto problem = ProblemOf(request);
  Assignment start{.begins = {0, 15, 35, 60, 80}, .devices = {0, 1, 2, 3, 4}};
  Evaluator evaluator(*problem);
  ASSERT_TRUE(evaluator.Evaluate(start, Effort::kFull).feasible());
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    grid::Rng rng(seed);
    const Assignment found = StageAnnealing(*problem, problem->usable()).Run(start, 0.25, kWork, rng);
    ExpectSoundAssignment(*problem, found);
    EXPECT_EQ(found.devices.size(), 5u);
    EXPECT_TRUE(evaluator.Evaluate(found, Effort::kFull).feasible());
  }
}

TEST(StageAnnealingTest, StagesOfOneOpAreNotSplit) {
  PlanRequest request = testing::Chain({.ops = 6, .op_s = 1, .cut_bytes = 1'000}, 16);
  for (int d = 0; d < 8; ++d) testing::AddDevice(request, "lab", 1 + 0.1 * d);
  testing::LinkSites(request, 1e9, 1e-4, 1e9, 1e-4);
  const auto problem = ProblemOf(request);
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    grid::Rng rng(seed);
    ExpectSoundAssignment(
        *problem, StageAnnealing(*problem, problem->usable()).Run({.begins = {0, 3, 4, 5}, .devices = {0, 1, 2, 3}}, 0.25, kWork, rng));
  }
}

// Two devices that are alike, the link to one of which takes long for what a tied parameter sends at the end of a step.
TEST(StageAnnealingTest, TheExchangeOfATiedParameterCounts) {
  PlanRequest request = testing::Chain({.ops = 8, .op_s = 0.1, .cut_bytes = 1'000}, 2);
  request.tied.push_back({.name = "wte", .ops = {2, 9}, .bytes = 100'000'000, .optimizer_bytes = 0});
  for (int d = 0; d < 3; ++d) testing::AddDevice(request, "lab", 1);
  testing::LinkSites(request, 1e9, 1e-4, 1e9, 1e-4);
  for (Link& link : request.links) {
    if (link.src + link.dst == 1) link.bytes_per_s = 1e7;
  }
  request.stages = 2;
  const auto problem = ProblemOf(request);
  grid::Rng rng(1);
  const Assignment found = StageAnnealing(*problem, problem->usable()).Run({.begins = {0, 6}, .devices = {0, 1}}, 0.25, kWork, rng);
  ExpectSoundAssignment(*problem, found);
  EXPECT_TRUE(std::count(found.devices.begin(), found.devices.end(), 2) == 1) << "between the other two the exchange takes ten seconds";
}

// As before, but nothing avoids the exchange: that what cannot be helped is no reason to refuse what can.
TEST(StageAnnealingTest, AnExchangeThatEveryPlanHasRefusesNoMove) {
  PlanRequest request = testing::Chain({.ops = 8, .op_s = 0.1, .cut_bytes = 1'000}, 2);
  request.tied.push_back({.name = "wte", .ops = {2, 9}, .bytes = 100'000'000, .optimizer_bytes = 0});
  for (const double time_scale : {1.0, 1.0, 0.5}) testing::AddDevice(request, "lab", time_scale);
  testing::LinkSites(request, 1e7, 1e-4, 1e7, 1e-4);
  request.stages = 2;
  const auto problem = ProblemOf(request);
  grid::Rng rng(1);
  const Assignment found = StageAnnealing(*problem, problem->usable()).Run({.begins = {0, 6}, .devices = {0, 1}}, 0.25, kWork, rng);
  EXPECT_EQ(std::count(found.devices.begin(), found.devices.end(), 2), 1) << "twice as fast as the others";
}

// What a move is judged by, from what it changes alone, is what all of the parts are worth.
TEST(StageAnnealingTest, MovesAreTakenForWhatTheyAreWorth) {
  int taken = 0, refused = 0;
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    const PlanRequest request = testing::DrawSmallInstance(seed, {.min_ops = 8, .min_devices = 3}).request;
    const auto created = Problem::Create(request);
    ASSERT_TRUE(created.ok());
    if (std::holds_alternative<PlanError>(*created)) continue;
    const Problem& problem = *std::get<std::unique_ptr<Problem>>(*created);
    const PlanOutcome outcome = *MakePlan("equal-compute", request);
    if (!std::holds_alternative<PlannedPipeline>(outcome)) continue;
    const Assignment start = testing::AssignmentOf(std::get<PlannedPipeline>(outcome));
    StageAnnealing annealing(problem, problem.usable());
    grid::Rng rng(seed);
    StageAnnealingPeer::Start(annealing, start, 0.4 * rng.Uniform());
    for (int move = 0; move < 300; ++move) {
      SCOPED_TRACE(::testing::Message() << "seed " << seed << ", move " << move);
      const double before = StageAnnealingPeer::Energy(annealing), limit = before * (1 - 0.02 * std::log(1 - rng.Uniform()));
      StageAnnealing same = annealing;
      grid::Rng same_rng = rng;
      if (StageAnnealingPeer::Move(annealing, limit, rng)) {
        ++taken;
        const double recomputed = StageAnnealingPeer::RecomputedEnergy(annealing);
        ASSERT_NEAR(StageAnnealingPeer::Energy(annealing), recomputed, 1e-9 * recomputed);
        ASSERT_LE(recomputed, limit * (1 + 1e-9));
      } else if (StageAnnealingPeer::Move(same, std::numeric_limits<double>::infinity(), same_rng)) {
        ++refused;
        ASSERT_GE(StageAnnealingPeer::RecomputedEnergy(same), limit * (1 - 1e-9));
        ASSERT_NEAR(StageAnnealingPeer::RecomputedEnergy(annealing), before, 1e-9 * before) << "a refused move leaves nothing behind";
      }
    }
  }
  EXPECT_GT(taken, 3'000);
  EXPECT_GT(refused, 10'000);
}

}  // namespace
}  // namespace fusionllm::scheduler
