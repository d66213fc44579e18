// What stages take at least, against what they take in plans.
#include <algorithm>

#include "gtest/gtest.h"
#include "lib/scheduler/planner.h"
#include "lib/scheduler/problem.h"
#include "lib/scheduler/testing/problems.h"
#include "lib/scheduler/testing/requests.h"

namespace fusionllm::scheduler {
namespace {

using testing::ProblemOf;

TEST(ProblemMemory, BoundsWithRecomputationAreBoundsOfEveryPlansStages) {
  int stages = 0, close = 0;
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    PlanRequest request = testing::RandomRequest(seed, {.max_ops = 24, .max_devices = 6, .max_micro_batches = 8, .tight_memory = false});
    request.recompute = true;
    if (seed % 4 != 0) testing::AddBlocks(request, seed);
    request.coordinates_steps = false;
    const auto problem = ProblemOf(request);
    if (problem == nullptr) continue;
    const absl::StatusOr<PlanOutcome> outcome = MakePlan("random", request);
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    const PlannedPipeline* plan = std::get_if<PlannedPipeline>(&*outcome);
    if (plan == nullptr) continue;
    int64_t together = 0;
    for (const PlannedStage& stage : plan->stages) {
      int begin = problem->positions(), end = 0;
      for (const int op : stage.ops) {
        begin = std::min(begin, problem->position_of(op));
        end = std::max(end, problem->position_of(op) + 1);
      }
      ++stages;
      const int64_t least = problem->StandaloneBytes(begin, end);
      EXPECT_LE(least, stage.memory_bytes) << "stage " << stage.index << " of " << plan->stages.size();
      close += least > stage.memory_bytes / 2;
      together += stage.memory_bytes;
    }
    EXPECT_LE(problem->StandaloneBytes(0, problem->positions()), together);
  }
  EXPECT_GT(stages, 600);
  EXPECT_GT(close, stages / 3);
}

// Eight ops that each keep what they make: op0 .. op7.
PlanRequest Eight(int ops_in_block) {
  PlanRequest request = testing::Chain({.ops = 8, .cut_bytes = 1'000, .parameter_bytes = 0}, 1);
  testing::AddDevice(request, "lab", 1);
  request.values.clear();
  for (int op = 2; op < 10; ++op) {
    request.values.push_back({.name = "x",
                              .producer = op,
                              .consumers = op < 9 ? std::vector<int>{op + 1} : std::vector<int>{},
                              .kept_by = {op},
                              .bytes = 1'000});
    request.ops[op].block = (op - 2) / ops_in_block;
    request.ops[op].workspace_bytes = request.ops[op].gradient_bytes = request.ops[op].optimizer_bytes = 0;
  }
  request.recompute = true;
  return request;
}

TEST(ProblemMemory, StashesBlockInputsAndRecomputesLargestBlock) {
  const PlanRequest pairs = Eight(2), one = Eight(8);
  EXPECT_EQ(ProblemOf(pairs)->StashBound(0, 10), 3'000) << "the seconds of the first three pairs";
  EXPECT_EQ(ProblemOf(pairs)->ScratchBound(0, 10), 2'000) << "the last pair: nobody reads the last of it";
  EXPECT_EQ(ProblemOf(one)->StashBound(0, 10), 0);
  EXPECT_EQ(ProblemOf(one)->ScratchBound(0, 10), 8'000);
  EXPECT_EQ(ProblemOf(one)->ScratchBound(4, 7), 3'000) << "a part of a block";
  EXPECT_EQ(ProblemOf(one)->StashBound(4, 7), 1'000) << "what was received";
}

TEST(ProblemMemory, OnlyWhatRunsAgainTakesTimeAgain) {
  PlanRequest request = Eight(2);
  for (int op = 2; op < 10; ++op) request.ops[op].runs_again = op % 2 == 0;
  PlanRequest without = request;
  without.recompute = false;
  const auto problem = ProblemOf(request), plain = ProblemOf(without);
  double again_s = 0;
  for (int p = 2; p < 10; p += 2) again_s += problem->ForwardSeconds(p, p + 1, 0);
  EXPECT_NEAR(problem->BackwardSeconds(0, 10, 0) - plain->BackwardSeconds(0, 10, 0), again_s, 1e-12);
  EXPECT_EQ(problem->ForwardSeconds(0, 10, 0), plain->ForwardSeconds(0, 10, 0));
}

}  // namespace
}  // namespace fusionllm::scheduler
