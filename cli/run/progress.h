// Live progress of a run as text: lines on a file, of steps no more than are read, one redrawn status line on a terminal; phases, events
// and evaluations as sentences above it.
//
// Never colours or redraws where NO_COLOR is set or the stream is no terminal. Not thread-safe.
#pragma once

#include <cstdint>
#include <cstdio>
#include <functional>
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
std::string PlanLine(const plan::Plan& plan);
// What it means for the job, a line each: empty for plans of other builds.
std::vector<std::string> PlanLines(const plan::Plan& plan);

struct ProgressStyle {
  bool redraw = false;
  bool colour = false;
  int columns = 0;  // of the terminal; 0: unknown
};
// By isatty, NO_COLOR and TERM.
ProgressStyle StyleOf(std::FILE* stream);

// Which steps have a line of their own. The first that is seen and the last always have one.
struct StepLines {
  int64_t every = 0;              // those that are multiples of it, on a terminal too; 0: as time goes
  double interval_s = 5;          // without `every`, on a file: no sooner than that after the one before
  std::function<double()> now_s;  // for tests; empty: the steady clock
};

class Progress {
 public:
  Progress(std::FILE* out, ProgressStyle style, int64_t total_steps, std::string prefix = "", StepLines lines = {});
  // Clears the status line; a last step that had no line gets one.
  ~Progress();

  void Show(LineType type, const report::Run& run);
  void Sentence(absl::string_view text, bool warning = false);
  // What goes on until the first step: a line, or on a terminal the status line.
  void Phase(absl::string_view text);

 private:
  void Step(const report::Run& run);
  void Status(absl::string_view text);
  void Clear();
  double Now() const;

  std::FILE* const out_;
  const ProgressStyle style_;
  const int64_t total_steps_;
  const std::string prefix_;
  const StepLines lines_;
  std::string status_, phase_;
  std::string unshown_;  // the last step's line where it was left out
  double shown_at_s_ = 0;
  bool any_step_ = false;
  bool drawn_ = false;
};

}  // namespace fusionllm::cli
