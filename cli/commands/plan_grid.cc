#include "cli/commands/plan_grid.h"

#include <cmath>
#include <cstdio>
#include <ctime>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/commands/option_checks.h"
#include "lib/base/exit_code.h"
#include "lib/base/source_file.h"
#include "lib/base/status_macros.h"
#include "lib/wire/grid_json.h"

namespace fusionllm::cli {
namespace {

namespace grid = scheduler::grid;

constexpr int64_t kMaxNetworkBytes = int64_t{64} << 20;

absl::StatusOr<grid::GridPlan> Search(const grid::GridProblem& problem, const GridArguments& arguments, const std::string& strategy,
                                      uint64_t seed) {
  if (!arguments.score.empty()) {
    FUSIONLLM_ASSIGN_OR_RETURN(const std::string text, base::AsBadInput(base::ReadSmallInput(arguments.score, kMaxNetworkBytes)));
    absl::StatusOr<grid::Grid> given = wire::ParseGrid(text);
    const absl::Status status = given.ok() ? grid::CheckGrid(problem, *given) : given.status();
    if (!status.ok()) return absl::InvalidArgumentError(absl::StrCat(arguments.score, ": ", std::string(status.message())));
    const grid::Cost cost = grid::ScoreGrid(problem, *given);
    return grid::GridPlan{.grid = *std::move(given), .cost = cost, .evaluations = 1};
  }
  if (strategy.empty() || strategy == "op-fence") return grid::FenceGrid(problem, seed);
  if (strategy == "dt-fm") return grid::Evolve(problem, seed);
  if (strategy == "random") return grid::RandomGrid(problem, seed);
  return absl::InvalidArgumentError(
      absl::StrFormat("--strategy %s does not plan for --objective dt-fm; op-fence, dt-fm and random do", strategy));
}

}  // namespace

void GridArguments::AddTo(CLI::App& command) {
  command.add_option("--objective", objective, "step: a job's step time; dt-fm: the communication cost of arXiv 2206.01288, without a job")
      ->check(OneOf({"step", "dt-fm"}))
      ->default_str("step");
  const std::string group = "With --objective dt-fm";
  command.add_option("--network", network, "scenario: delays and bandwidths between devices (JSON)")->group(group);
  command.add_option("--d-pp", stages, "pipeline stages")->group(group);
  command.add_option("--d-dp", pipelines, "pipelines, which are replicas of each stage")->group(group);
  command.add_option("--grad-gib", gradient_gib, "GiB of gradients that the replicas of a stage exchange")->group(group);
  command.add_option("--act-gib", activation_gib, "GiB of activations that cross a boundary of a pipeline")->group(group);
  command.add_option("--score", score, "score this grid instead of searching one (JSON)")->group(group);
}

absl::StatusOr<int> PlanGrid(const GridArguments& arguments, const std::string& strategy, uint64_t seed, OutputFormat format) {
  for (const auto& [option, gib, what] :
       {std::tuple("--grad-gib", arguments.gradient_gib, "gradients"), std::tuple("--act-gib", arguments.activation_gib, "activations")}) {
    if (std::isfinite(gib) && gib >= 0 && gib <= grid::GridProblem::kMaxGib) continue;
    const std::string wanted =
        gib > grid::GridProblem::kMaxGib ? absl::StrFormat("at most %g", grid::GridProblem::kMaxGib) : "a non-negative number";
    return absl::InvalidArgumentError(absl::StrFormat("%s: the GiB of %s must be %s, got %g", option, what, wanted, gib));
  }
  if (arguments.network.empty()) return absl::InvalidArgumentError("--objective dt-fm needs --network SCENARIO.json");
  FUSIONLLM_ASSIGN_OR_RETURN(const std::string text, base::AsBadInput(base::ReadSmallInput(arguments.network, kMaxNetworkBytes)));
  const auto named = [&](const absl::Status& status) {
    return absl::InvalidArgumentError(absl::StrCat(arguments.network, ": ", std::string(status.message())));
  };
  const absl::StatusOr<grid::Network> network = wire::ParseNetwork(text);
  if (!network.ok()) return named(network.status());
  const absl::StatusOr<grid::GridProblem> problem = grid::GridProblem::Create(*network, {.stages = arguments.stages,
                                                                                         .pipelines = arguments.pipelines,
                                                                                         .gradient_gib = arguments.gradient_gib,
                                                                                         .activation_gib = arguments.activation_gib});
  if (!problem.ok()) return named(problem.status());
  const std::clock_t begin = std::clock();
  FUSIONLLM_ASSIGN_OR_RETURN(const grid::GridPlan plan, Search(*problem, arguments, strategy, seed));
  const double cpu_seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  if (format == OutputFormat::kJson) {
    absl::PrintF("%s\n", wire::PrintGridPlan(plan, cpu_seconds));
    return kExitDone;
  }
  absl::PrintF("%.3f s of communication an iteration: %.3f s between replicas, %.3f s along the pipelines\n", plan.cost.total_s(),
               plan.cost.data_parallel_s, plan.cost.pipeline_s);
  for (size_t stage = 0; stage < plan.grid.size(); ++stage) absl::PrintF("stage %d: %s\n", stage, absl::StrJoin(plan.grid[stage], " "));
  absl::PrintF("%d evaluations, %.2f s of CPU\n", plan.evaluations, cpu_seconds);
  return kExitDone;
}

}  // namespace fusionllm::cli
