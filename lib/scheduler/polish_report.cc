// What more search buys on 48 and 64 devices: polish_report [FIRST [COUNT [BUDGET...]]]. Of ten transformers over cities, the steps that
// op-fence plans with each budget, and how far they are above the best of the row; docs/results/planner.md has the figures.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include "lib/scheduler/planner.h"
#include "lib/scheduler/testing/requests.h"

namespace fusionllm::scheduler {
namespace {

// Odd numbers: 400 ops on 48 devices; even ones: 960 on 64.
PlanRequest Instance(uint64_t number) {
  const bool small = number % 2 == 1;
  PlanRequest request = testing::Transformer({.layers = small ? 50 : 120}, 32);
  testing::AddCities(request, number, small ? 48 : 64, 16, int64_t{16} << 30);
  return request;
}

int Main(int argc, char** argv) {
  const uint64_t first = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1;
  const uint64_t count = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 10;
  std::vector<int64_t> budgets;
  for (int i = 3; i < argc; ++i) budgets.push_back(std::strtoll(argv[i], nullptr, 10));
  std::vector<double> logs(budgets.size());
  for (uint64_t number = first; number < first + count; ++number) {
    PlanRequest request = Instance(number);
    std::printf("| %lu: %zu ops, %zu devices |", number, request.ops.size() - 2, request.devices.size());
    for (size_t i = 0; i < budgets.size(); ++i) {
      request.search_budget = budgets[i];
      const std::clock_t begin = std::clock();
      const auto outcome = MakePlan("op-fence", request);
      const double cpu_s = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
      const PlannedPipeline& plan = std::get<PlannedPipeline>(*outcome);
      std::printf(" %.3f | %.2f |", plan.predicted_step_s, cpu_s);
      std::fflush(stdout);
      logs[i] += std::log(plan.predicted_step_s) / static_cast<double>(count);
    }
    std::printf("\n");
  }
  std::printf("geometric mean");
  for (double mean : logs) std::printf(" %.3f", std::exp(mean));
  std::printf("\n");
  return 0;
}

}  // namespace
}  // namespace fusionllm::scheduler

int main(int argc, char** argv) { return fusionllm::scheduler::Main(argc, argv); }
