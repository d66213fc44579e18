#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>
#include <variant>
#include <vector>

#include "gtest/gtest.h"
#include "lib/scheduler/assignment.h"
#include "lib/scheduler/grid/rng.h"
#include "lib/scheduler/testing/requests.h"
#include "lib/scheduler/testing/small_instances.h"

namespace fusionllm::scheduler {
namespace {

// Devices and cuts by chance; links, memory and pins may forbid it.
Assignment DrawAssignment(const Problem& problem, grid::Rng& rng) {
  std::vector<int> devices = problem.usable(), cuts(problem.positions() - problem.first_cut());
  std::iota(cuts.begin(), cuts.end(), problem.first_cut());
  rng.Shuffle(devices);
  rng.Shuffle(cuts);
  const size_t stages = 1 + rng.Below(static_cast<int>(std::min(devices.size(), cuts.size() + 1)));
  devices.resize(stages);
  cuts.resize(stages - 1);
  std::sort(cuts.begin(), cuts.end());
  cuts.insert(cuts.begin(), 0);
  return {.begins = cuts, .devices = devices};
}

// Searches tell the evaluator what is worth knowing exactly: that must change nothing about what is, and never flatter the rest.
TEST(EvaluatorTest, CutoffGivesBoundAboveAndCostBelow) {
  int exact = 0, bounded = 0, below = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    const PlanRequest request = testing::DrawSmallInstance(seed, {.max_ops = 30}).request;
    const auto created = Problem::Create(request);
    ASSERT_TRUE(created.ok());
    if (std::holds_alternative<PlanError>(*created)) continue;
    const Problem& problem = *std::get<std::unique_ptr<Problem>>(*created);
    Evaluator evaluator(problem);
    grid::Rng rng(seed);
    for (int i = 0; i < 4; ++i) {
      const Assignment assignment = DrawAssignment(problem, rng);
      for (const Effort effort : {Effort::kQuick, Effort::kFull}) {
        const Evaluation whole = evaluator.Evaluate(assignment, effort);
        if (!whole.feasible()) continue;
        for (const double share : {0.5, 0.9, 0.99, 0.999, 0.9995, 0.9999, 1.0, 1.001, 1.02, 2.0}) {
          SCOPED_TRACE(::testing::Message() << "seed " << seed << ", assignment " << i << ", share " << share);
          const double cutoff_s = share * whole.cost_s();
          const Evaluation judged = evaluator.Evaluate(assignment, effort, cutoff_s);
          ASSERT_TRUE(judged.feasible());
          if (share >= 1) {
            EXPECT_EQ(judged.cost_s(), whole.cost_s());
            ++exact;
            continue;
          }
          EXPECT_GT(judged.cost_s(), cutoff_s);
          EXPECT_LE(judged.cost_s(), whole.cost_s() * (1 + 1e-8));
          ++bounded;
          below += judged.cost_s() < whole.cost_s() ? 1 : 0;
        }
      }
    }
  }
  EXPECT_GT(exact, 1'000);
  EXPECT_GT(below, bounded / 4) << "of " << bounded;
}

// A candidate that is given up without a simulation is never better than what it had to beat.
TEST(EvaluatorTest, GivesUpOnlyWhatCannotWin) {
  int given_up = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    const PlanRequest request = testing::RandomRequest(seed, {.max_ops = 30, .max_devices = 6, .max_micro_batches = 16});
    auto created = Problem::Create(request);
    ASSERT_TRUE(created.ok());
    if (std::holds_alternative<PlanError>(*created)) continue;
    const auto& problem = *std::get<std::unique_ptr<Problem>>(*created);
    Evaluator evaluator(problem);
    for (int stages = 1; stages <= problem.max_stages(); ++stages) {
      Assignment assignment{.devices = {problem.usable().begin(), problem.usable().begin() + stages}};
      for (int s = 0; s < stages; ++s) assignment.begins.push_back(s == 0 ? 0 : problem.first_cut() + s - 1);
      for (const Effort effort : {Effort::kQuick, Effort::kFull}) {
        const Evaluation truth = evaluator.Evaluate(assignment, effort);
        if (!truth.feasible()) continue;
        const Evaluation again = evaluator.Evaluate(assignment, effort, truth.cost_s() * (1 + 1e-7));
        EXPECT_EQ(again.step_s, truth.step_s) << "seed " << seed << ", " << stages << " stages";
        const int64_t before = evaluator.evaluations();
        EXPECT_GT(evaluator.Evaluate(assignment, effort, truth.cost_s() / 2).cost_s(), truth.cost_s() / 2);
        given_up += evaluator.evaluations() == before;
      }
    }
  }
  EXPECT_GT(given_up, 300);
}

}  // namespace
}  // namespace fusionllm::scheduler
