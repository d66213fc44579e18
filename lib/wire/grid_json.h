// Networks, grids and answers of the allocation problem (lib/scheduler/grid) as JSON. Reading trusts nothing. Pure functions; thread-safe.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/scheduler/grid/grid_search.h"

namespace fusionllm::wire {

// {"name", "n", "delay_ms": [n][n], "bandwidth_gbps": [n][n]}; other keys are ignored. Whether the numbers make sense is
// GridProblem::Create's to say. Errors: InvalidArgument naming the field.
absl::StatusOr<scheduler::grid::Network> ParseNetwork(absl::string_view text);

// [[device, ...] per stage], or an object that has it under "grid", as PrintGridPlan writes it.
absl::StatusOr<scheduler::grid::Grid> ParseGrid(absl::string_view text);

// {"grid", "dp_cost_s", "pp_cost_s", "total_s", "search_cpu_seconds", "evaluations"}.
std::string PrintGridPlan(const scheduler::grid::GridPlan& plan, double search_cpu_seconds);

}  // namespace fusionllm::wire
