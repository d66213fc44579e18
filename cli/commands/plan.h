// The plan of a job as `fusionctl plan` prints it, for other commands that show one.
#pragma once

#include "absl/status/statusor.h"
#include "cli/commands/job_arguments.h"
#include "cli/run/run_job.h"

namespace fusionllm::cli {

// Plans and prints to stdout, as text or as one JSON object; a refusal is written to stderr, too. The exit code. `as_run_line`: the object
// has "type": "plan", as the lines of a run do. Errors: those of the job, topology and profiles.
absl::StatusOr<int> PrintPlanOf(const PlanArguments& arguments, OutputFormat format, bool as_run_line = false);

}  // namespace fusionllm::cli
