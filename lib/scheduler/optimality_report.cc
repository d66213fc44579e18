// How far OP-Fence is from the optimum on small jobs: optimality_report [FIRST_SEED [COUNT [BUDGET_FACTOR]]]. A line for each job it misses
// by more than 0.01 %, and a table by regime; BUDGET_FACTOR multiplies the budget of `exact`. docs/results/planner.md has the figures.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "lib/scheduler/planner.h"
#include "lib/scheduler/testing/small_instances.h"

namespace fusionllm::scheduler {
namespace {

constexpr double kWorthALine = 1e-4;

double CpuSeconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

struct Tally {
  std::vector<double> gaps;  // cost of op-fence / of exact - 1
  int refused = 0, open = 0;
  double exact_s = 0, fence_s = 0;

  void Add(const Tally& other) {
    gaps.insert(gaps.end(), other.gaps.begin(), other.gaps.end());
    refused += other.refused;
    open += other.open;
    exact_s += other.exact_s;
    fence_s += other.fence_s;
  }
};

PlanOutcome Planned(const char* planner, const PlanRequest& request, double& cpu_s) {
  const double begin_s = CpuSeconds();
  absl::StatusOr<PlanOutcome> outcome = MakePlan(planner, request);
  cpu_s += CpuSeconds() - begin_s;
  if (outcome.ok()) return *std::move(outcome);
  std::fprintf(stderr, "%s: %s\n", planner, std::string(outcome.status().message()).c_str());
  std::exit(1);
}

// What both minimise: seconds of a step, stretched by what compression costs.
double CostOf(const PlannedPipeline& plan) {
  double loss = 0;
  for (const PlannedLink& link : plan.links) loss += link.loss_cost;
  return plan.predicted_step_s * (1 + kTimePerNat * loss);
}

std::string Brief(const PlannedPipeline& plan) {
  std::string text;
  for (const PlannedStage& stage : plan.stages) {
    text += (text.empty() ? "" : " ") + std::to_string(stage.devices[0]) + ":" + std::to_string(stage.ops.size());
  }
  return text;
}

void Compare(uint64_t seed, const testing::SmallInstance& instance, int64_t budget_factor, Tally& tally) {
  PlanRequest patient = instance.request;
  patient.search_budget *= budget_factor;
  const PlanOutcome exact = Planned("exact", patient, tally.exact_s);
  const PlanOutcome fence = Planned("op-fence", instance.request, tally.fence_s);
  const auto* refusal = std::get_if<PlanError>(&exact);
  if (refusal != nullptr && refusal->reason == "InstanceTooLarge") {
    ++tally.open;
    std::printf("seed %5lu %-8s %2zu ops %zu devices: exact gave up\n", seed, instance.regime.c_str(), instance.request.ops.size() - 2,
                instance.request.devices.size());
    std::fflush(stdout);
    return;
  }
  if (std::holds_alternative<PlanError>(exact) != std::holds_alternative<PlanError>(fence)) {
    std::printf("seed %5lu: only one of the two refused\n", seed);
    std::exit(1);
  }
  if (refusal != nullptr) {
    ++tally.refused;
    return;
  }
  const PlannedPipeline &best = std::get<PlannedPipeline>(exact), &found = std::get<PlannedPipeline>(fence);
  tally.gaps.push_back(CostOf(found) / CostOf(best) - 1);
  if (tally.gaps.back() <= kWorthALine) return;
  std::printf("seed %5lu %-8s %2zu ops %zu devices m=%d%s%s: op-fence %.6f s (%s), exact %.6f s (%s): %+.2f %%\n", seed,
              instance.regime.c_str(), instance.request.ops.size() - 2, instance.request.devices.size(), instance.request.micro_batches,
              instance.request.schedule.forwards_first() ? " gpipe" : "", instance.compressed ? " compressed" : "", CostOf(found),
              Brief(found).c_str(), CostOf(best), Brief(best).c_str(), 100 * tally.gaps.back());
  std::fflush(stdout);
}

void PrintRow(const char* name, Tally tally) {
  std::sort(tally.gaps.begin(), tally.gaps.end());
  const size_t n = tally.gaps.size();
  const double mean = n > 0 ? std::accumulate(tally.gaps.begin(), tally.gaps.end(), 0.0) / static_cast<double>(n) : 0;
  const auto optimal = std::count_if(tally.gaps.begin(), tally.gaps.end(), [](double gap) { return gap < 1e-9; });
  std::printf("| %s | %zu | %d | %d | %ld | %.3f | %.3f | %.3f | %.1f | %.1f |\n", name, n, tally.refused, tally.open, optimal, 100 * mean,
              n > 0 ? 100 * tally.gaps[(n - 1) * 99 / 100] : 0, n > 0 ? 100 * tally.gaps.back() : 0, tally.fence_s, tally.exact_s);
}

int Main(int argc, char** argv) {
  const uint64_t first = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1;
  const uint64_t count = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 500;
  const int64_t budget_factor = argc > 3 ? std::strtoll(argv[3], nullptr, 10) : 1;
  std::map<std::string, Tally> tallies;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const testing::SmallInstance instance = testing::DrawSmallInstance(seed, {});
    Compare(seed, instance, budget_factor, tallies[instance.regime]);
  }
  std::printf(
      "| regime | compared | refused by both | exact gave up | optimal | mean %% | p99 %% | max %% | op-fence CPU s | exact CPU s |\n");
  std::printf("|---|---|---|---|---|---|---|---|---|---|\n");
  Tally all;
  for (const auto& [regime, tally] : tallies) {
    PrintRow(regime.c_str(), tally);
    all.Add(tally);
  }
  PrintRow("all", all);
  return 0;
}

}  // namespace
}  // namespace fusionllm::scheduler

int main(int argc, char** argv) { return fusionllm::scheduler::Main(argc, argv); }
