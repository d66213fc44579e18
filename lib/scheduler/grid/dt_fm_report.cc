// OP-Fence against DT-FM's own search on DT-FM's measure: dt_fm_report [FIRST_SEED [COUNT]]. The study's networks, unless a seed is given,
// then irregular ones by seed. docs/results/dt-fm.md has the figures.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "lib/scheduler/grid/grid_search.h"
#include "lib/scheduler/grid/testing/scenarios.h"

namespace fusionllm::scheduler::grid {
namespace {

void PrintRow(const Network& network) {
  const GridProblem problem = *GridProblem::Create(network, StudyShape());
  const std::clock_t begin = std::clock();
  const double fence_s = FenceGrid(problem, 1).cost.total_s();
  const double cpu_s = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  const double once_s = Evolve(problem, 1).cost.total_s(), twice_s = Evolve(problem, 1, {.rounds = 2}).cost.total_s();
  const double rival_s = std::min(once_s, twice_s);
  std::printf("| %s | %.3f | %.2f | %.3f | %.3f | %.1f |\n", network.name.c_str(), fence_s, cpu_s, once_s, twice_s,
              100 * (1 - fence_s / rival_s));
  std::fflush(stdout);
}

int Main(int argc, char** argv) {
  const uint64_t first = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1;
  const uint64_t count = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 12;
  std::printf("| network | op-fence, s | CPU s | dt-fm, s | dt-fm, two rounds for each child, s | below the better of both, %% |\n");
  std::printf("|---|---|---|---|---|---|\n");
  if (argc <= 1) {
    for (const Scenario& scenario : StudyScenarios()) PrintRow(scenario.network);
  }
  for (uint64_t seed = first; seed < first + count; ++seed) PrintRow(IrregularNetwork(seed));
  return 0;
}

}  // namespace
}  // namespace fusionllm::scheduler::grid

int main(int argc, char** argv) { return fusionllm::scheduler::grid::Main(argc, argv); }
