// Live progress of a run as text: a line for each step on a file, one redrawn status line on a terminal; events as sentences above it.
//
// Never colours or redraws where NO_COLOR is set or the stream is no terminal. Not thread-safe.
#pragma once

#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "cli/run/run_session.h"
#include "lib/report/run_record.h"

namespace fusionllm::cli {

// "step 120/5000 (2.4%) loss 3.412 gnorm 1.1 lr 3.0e-4 tok/s 5,210 step 1.92s (plan 1.85s) ETA 2h36m"; images have "images/s"; the ETA goes
// by the median of the last steps. `run` has at least one step.
std::string StepLine(const report::Run& run, int64_t total_steps);
// "plan: op-fence, 2 stages (paris-0 > tokyo-0), 8 micro-batches, 4 in flight, predicted step 1.85s", of several replicas
// "plan: op-fence, 2 replicas of 1 stage (a; b), 8 micro-batches (5 + 3), ..."
std::string PlanLine(const report::Plan& plan);
// What it means for the job, a line each: empty for plans of other builds.
std::vector<std::string> PlanLines(const report::Plan& plan);

struct ProgressStyle {
  bool redraw = false;
  bool colour = false;
  int columns = 0;  // of the terminal; 0: unknown
};
// By isatty, NO_COLOR and TERM.
ProgressStyle StyleOf(std::FILE* stream);

class Progress {
 public:
  Progress(std::FILE* out, ProgressStyle style, int64_t total_steps, std::string prefix = "");
  // Clears the status line.
  ~Progress();

  void Show(LineType type, const report::Run& run);
  void Sentence(absl::string_view text, bool warning = false);
  // Of what goes on until the first step; on a terminal only.
  void Status(absl::string_view text);

 private:
  void Clear();

  std::FILE* const out_;
  const ProgressStyle style_;
  const int64_t total_steps_;
  const std::string prefix_;
  std::string status_;
  bool drawn_ = false;
};

}  // namespace fusionllm::cli
