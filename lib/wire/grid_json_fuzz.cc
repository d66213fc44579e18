// Networks and grids as users or other programs wrote them.
#include "lib/base/testing/fuzz.h"
#include "lib/wire/grid_json.h"

namespace fusionllm::wire {
namespace {

std::vector<std::string> Seeds() {
  return {R"({"name": "pair", "n": 2, "symmetric": true, "delay_ms": [[0, 10], [10, 0]], "bandwidth_gbps": [[0, 1.5], [1, 0]]})",
          R"({"grid": [[0, 3], [2, 1]]})", "[[0, 3], [2, 1]]"};
}

std::vector<std::string> Words() { return {"[[", "]]", "[]", "4096", "4097", "\"n\": 1", "1e308", "4294967296"}; }

bool Accepts(absl::string_view input) {
  const auto network = ParseNetwork(input);
  if (network.ok()) {
    // What is read is of any numbers: the problem must refuse what it cannot compute with.
    const auto problem =
        scheduler::grid::GridProblem::Create(*network, {.stages = 1, .pipelines = static_cast<int>(network->delay_ms.size())});
    if (problem.ok()) FUZZ_CHECK(problem->devices() == static_cast<int>(network->bandwidth_gbps.size()));
  }
  const auto grid = ParseGrid(input);
  if (grid.ok()) FUZZ_CHECK(*ParseGrid(PrintGridPlan({.grid = *grid}, 0)) == *grid);
  return network.ok() || grid.ok();
}

}  // namespace
}  // namespace fusionllm::wire

fusionllm::base::FuzzTarget fusionllm::base::TheFuzzTarget() { return {wire::Seeds, wire::Words, wire::Accepts}; }
