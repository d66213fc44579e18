#include "lib/scheduler/simulator_annealing.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "gtest/gtest.h"
#include "lib/scheduler/planner.h"
#include "lib/scheduler/testing/problems.h"
#include "lib/scheduler/testing/requests.h"
#include "lib/scheduler/testing/small_instances.h"

namespace fusionllm::scheduler {
namespace {

using testing::CostOf;

PlanRequest Skewed() {
  PlanRequest request = testing::Chain({.ops = 24, .op_s = 0.01, .cut_bytes = 100'000}, 8);
  for (const double time_scale : {1.0, 3.0, 1.5, 1.0, 2.0}) testing::AddDevice(request, "lab", time_scale);
  testing::LinkSites(request, 1e7, 1e-3, 1e7, 1e-3);
  return request;
}

class Annealed {
 public:
  Annealed(PlanRequest request, const Assignment& start)
      : request_(std::move(request)),
        problem_(std::move(std::get<std::unique_ptr<Problem>>(*Problem::Create(request_)))),
        evaluator_(*problem_),
        start_{start, {}} {
    start_.evaluation = evaluator_.Evaluate(start, Effort::kFull);
  }
  Candidate Run(int64_t work, uint64_t seed) {
    grid::Rng rng(seed);
    return SimulatorAnnealing(*problem_, evaluator_).Run(start_, Effort::kFull, work, rng);
  }
  const Problem& problem() const { return *problem_; }
  Evaluator& evaluator() { return evaluator_; }
  const Candidate& start() const { return start_; }

 private:
  const PlanRequest request_;
  std::unique_ptr<Problem> problem_;
  Evaluator evaluator_;
  Candidate start_;
};

TEST(SimulatorAnnealingTest, FindsTheBestPlanFromABadOne) {
  const PlanRequest request = Skewed();
  // Nearly all ops on the slowest device: cuts, order and the number of stages are all wrong.
  Annealed annealed(request, {.begins = {0, 1, 23}, .devices = {0, 1, 2}});
  ASSERT_TRUE(annealed.start().evaluation.feasible());
  const double min_s = CostOf(std::get<PlannedPipeline>(*MakePlan("exact", request)));
  ASSERT_GT(annealed.start().evaluation.cost_s(), 1.2 * min_s);
  EXPECT_LE(annealed.Run(6'000, 1).evaluation.cost_s(), min_s * (1 + 1e-6));
}

TEST(SimulatorAnnealingTest, KeepsToItsBudgetAndToTheSeed) {
  Annealed annealed(Skewed(), {.begins = {0}, .devices = {0}});
  const int64_t before = annealed.evaluator().work();
  const Candidate once = annealed.Run(500, 7);
  EXPECT_LE(annealed.evaluator().work() - before, 510) << "one evaluation may go over";
  const Candidate again = annealed.Run(500, 7);
  EXPECT_EQ(once.assignment, again.assignment);
  EXPECT_EQ(once.evaluation.cost_s(), again.evaluation.cost_s());
}

// Numbers of stages, pins, exclusions, memory: of any job the answer is a plan that holds, no worse than the start.
TEST(SimulatorAnnealingTest, AnswersWithWhatTheJobAllows) {
  int annealed_jobs = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    const PlanRequest request = testing::DrawSmallInstance(seed, {.max_ops = 20}).request;
    const auto created = Problem::Create(request);
    ASSERT_TRUE(created.ok());
    if (std::holds_alternative<PlanError>(*created)) continue;
    const PlanOutcome outcome = *MakePlan("equal-compute", request);
    if (!std::holds_alternative<PlannedPipeline>(outcome)) continue;
    const Assignment start = testing::AssignmentOf(std::get<PlannedPipeline>(outcome));
    Annealed annealed(request, start);
    if (!annealed.start().evaluation.feasible()) continue;
    ++annealed_jobs;
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const Candidate result = annealed.Run(300, seed);
    EXPECT_TRUE(result.evaluation.feasible());
    EXPECT_LE(result.evaluation.cost_s(), annealed.start().evaluation.cost_s() * (1 + 1e-9));
    const Problem& problem = annealed.problem();
    const int stages = static_cast<int>(result.assignment.devices.size());
    EXPECT_GE(stages, std::min<int>(problem.min_stages(), static_cast<int>(start.devices.size())));
    EXPECT_LE(stages, std::max<int>(problem.max_stages(), static_cast<int>(start.devices.size())));
    std::vector<int> devices = result.assignment.devices;
    std::sort(devices.begin(), devices.end());
    EXPECT_EQ(std::adjacent_find(devices.begin(), devices.end()), devices.end()) << "a device runs two stages";
    for (int s = 1; s < stages; ++s) EXPECT_GT(result.assignment.begins[s], result.assignment.begins[s - 1]);
    EXPECT_NEAR(annealed.evaluator().Evaluate(result.assignment, Effort::kFull).cost_s(), result.evaluation.cost_s(), 1e-9);
  }
  EXPECT_GE(annealed_jobs, 30);
}

}  // namespace
}  // namespace fusionllm::scheduler
