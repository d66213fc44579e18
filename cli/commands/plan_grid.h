// `fusionctl plan --objective dt-fm`: the allocation problem of DT-FM instead of a job.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "cli/commands/command.h"

namespace fusionllm::cli {

struct GridArguments {
  std::string objective;  // by default "step": a job's step time, and nothing below counts
  std::string network, score;
  int stages = 0, pipelines = 0;
  double gradient_gib = 0, activation_gib = 0;

  void AddTo(CLI::App& command);
  bool wanted() const { return objective == "dt-fm"; }
};

// `strategy`: op-fence (also when empty), dt-fm or random. Prints the grid and its cost; the value is the exit code.
absl::StatusOr<int> PlanGrid(const GridArguments& arguments, const std::string& strategy, uint64_t seed, OutputFormat format);

}  // namespace fusionllm::cli
