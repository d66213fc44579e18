// `fusionctl plan JOB --running PLAN.json`: whether to leave a running plan under the hardware of now, for which, and what moves.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "cli/commands/command.h"
#include "cli/commands/job_arguments.h"

namespace fusionllm::cli {

struct RunningArguments {
  std::string plan;  // a file; empty: there is no running plan
  int64_t steps_left = -1;
  double step_seconds = 0, move_seconds = 0, min_improvement = 0.05;

  void AddTo(CLI::App& command);
  bool wanted() const { return !plan.empty(); }
};

// Prints the answer; the value is the exit code: a job that cannot go on is infeasible.
absl::StatusOr<int> PlanRunning(const PlanArguments& arguments, const RunningArguments& running, OutputFormat format);

}  // namespace fusionllm::cli
