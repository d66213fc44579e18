// The search against brute force on tiny instances: every number of pipelines and stages, every choice and order of devices, every cut,
// every way to deal the micro-batches out.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "lib/scheduler/infinity.h"
#include "lib/scheduler/replicas/replica_evaluator.h"
#include "lib/scheduler/replicas/replica_planner.h"
#include "lib/scheduler/testing/requests.h"

namespace fusionllm::scheduler::replicas {
namespace {

constexpr int kSeeds = 100;
constexpr double kWithin = 1.05;

void ForEachShares(int micro_batches, int pipelines, std::vector<int>& shares, const std::function<void()>& visit) {
  if (pipelines == 1) {
    shares.push_back(micro_batches);
    visit();
    shares.pop_back();
    return;
  }
  for (int share = 1; share <= micro_batches - pipelines + 1; ++share) {
    shares.push_back(share);
    ForEachShares(micro_batches - share, pipelines - 1, shares, visit);
    shares.pop_back();
  }
}

void ForEachCuts(const Problem& problem, int stages, std::vector<int>& begins, const std::function<void()>& visit) {
  if (static_cast<int>(begins.size()) == stages) return visit();
  const int first = begins.size() == 1 ? problem.first_cut() : begins.back() + 1;
  for (int cut = first; cut < problem.positions(); ++cut) {
    begins.push_back(cut);
    ForEachCuts(problem, stages, begins, visit);
    begins.pop_back();
  }
}

// Pipelines are alike: of the orders of columns only the one with ascending devices in the first stage.
void ForEachGrid(const Problem& problem, int stages, int pipelines,
                 const std::function<void(const std::vector<std::vector<int>>&)>& visit) {
  std::vector<int> devices = problem.usable();
  std::sort(devices.begin(), devices.end());
  const int cells = stages * pipelines;
  std::vector<int> last;
  do {
    const std::vector<int> head(devices.begin(), devices.begin() + cells);
    if (head == last) continue;
    last = head;
    if (!std::is_sorted(head.begin(), head.begin() + pipelines)) continue;
    std::vector<std::vector<int>> grid;
    for (int s = 0; s < stages; ++s) grid.emplace_back(head.begin() + s * pipelines, head.begin() + (s + 1) * pipelines);
    visit(grid);
  } while (std::next_permutation(devices.begin(), devices.end()));
}

double BestByForce(const PlanRequest& request, int min_pipelines, int max_pipelines) {
  const auto problem = std::get<std::unique_ptr<Problem>>(Problem::Create(request).value());
  ReplicaEvaluator evaluator(*problem);
  const int usable = static_cast<int>(problem->usable().size()), ops = problem->positions() - problem->first_cut() + 1;
  double best_s = kInfinity;
  for (int pipelines = min_pipelines; pipelines <= std::min({max_pipelines, usable, request.micro_batches}); ++pipelines) {
    for (int stages = 1; stages <= std::min(usable / pipelines, ops); ++stages) {
      ForEachGrid(*problem, stages, pipelines, [&](const std::vector<std::vector<int>>& devices) {
        std::vector<int> begins = {0}, shares;
        ForEachCuts(*problem, stages, begins, [&] {
          ForEachShares(request.micro_batches, pipelines, shares, [&] {
            const ReplicaEvaluation evaluation = evaluator.EvaluateWithShares({begins, devices}, shares, Effort::kFull);
            if (evaluation.feasible()) best_s = std::min(best_s, evaluation.cost_s());
          });
        });
      });
    }
  }
  return best_s;
}

// The planner's step over the best there is; 1 when both say that there is nothing.
double RatioToForce(const PlanRequest& request, int replicas) {
  const double best_s = replicas == kAutoReplicas ? BestByForce(request, 1, 4) : BestByForce(request, replicas, replicas);
  const ReplicaOutcome outcome = PlanReplicas("op-fence", request, replicas).value();
  const auto* plan = std::get_if<ReplicaPlan>(&outcome);
  if (plan == nullptr) return best_s == kInfinity ? 1 : kInfinity;
  return plan->predicted_step_s / best_s;
}

void ExpectNearTheBest(int replicas, int first_seed) {
  std::vector<double> ratios;
  for (int seed = first_seed; seed < first_seed + kSeeds; ++seed) {
    PlanRequest request =
        testing::RandomRequest(seed, {.max_ops = 6, .max_devices = 4, .max_micro_batches = 5, .tight_memory = seed % 2 == 0});
    request.search_budget = 4'000;
    const double ratio = RatioToForce(request, replicas);
    EXPECT_LE(ratio, kWithin) << "seed " << seed;
    EXPECT_GE(ratio, 1 - 1e-9) << "seed " << seed << ": better than every grid there is";
    ratios.push_back(ratio);
  }
  std::sort(ratios.begin(), ratios.end());
  double sum = 0;
  for (const double ratio : ratios) sum += ratio;
  std::printf("%d seeds: mean %.5f, median %.5f, p90 %.5f, p99 %.5f, largest %.5f\n", kSeeds, sum / kSeeds, ratios[kSeeds / 2],
              ratios[kSeeds * 9 / 10], ratios[kSeeds * 99 / 100], ratios.back());
}

TEST(ReplicaOptimalityTest, WithinFivePercentOfBruteForceWhateverTheNumberOfPipelines) { ExpectNearTheBest(kAutoReplicas, 1); }

TEST(ReplicaOptimalityTest, WithinFivePercentOfBruteForceWithTwoPipelines) { ExpectNearTheBest(2, 1'001); }

}  // namespace
}  // namespace fusionllm::scheduler::replicas
