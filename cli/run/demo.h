// `fusionctl demo`: one small training job, run three times over the same emulated sites, to show what the planner and compression do.
//
// The rows differ in the planner and in compression alone: model, data, seed, micro-batches, schedule, depth and transport are those of
// examples/jobs/demo.yaml, all plan from what the first one measured of devices and links, and all make the same number of steps, so losses
// are those after the same training. A device that is lost is done without, and the table says so.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/run/run_job.h"
#include "cli/run/signal_watch.h"

namespace fusionllm::cli {

struct DemoOptions {
  std::optional<int64_t> steps;   // of each row; absent: what the job says
  std::optional<double> seconds;  // the first row ends then at the latest, and the others make as many steps as it did
  std::string output;             // empty: runs/demo-TIMESTAMP
  std::string source;             // folder with examples/jobs/demo.yaml; empty: two above this program's
  OutputFormat format = OutputFormat::kText;
  std::optional<std::string> log_level;  // of the services
  std::string bin_folder;                // empty: this program's
};

struct DemoRow {
  std::string folder;  // below the output
  std::string title;
  job::FusionJob job;
};
// naive, the planner on all devices, the planner free to choose its devices.
std::vector<DemoRow> DemoRows(const job::FusionJob& job, int64_t devices);

// Exit code. An error status: nothing was run.
absl::StatusOr<int> RunDemo(const DemoOptions& options, SignalWatch& signals);

}  // namespace fusionllm::cli
