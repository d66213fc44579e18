// What the losses of runs come to: means over steps, the best validation, and how long a loss took to be reached. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lib/report/run_record.h"

namespace fusionllm::report {

// Whether any of the step's targets counts: else it has no loss.
inline bool HasLoss(const StepPoint& step) { return step.targets > 0 || step.ignored_targets == 0; }

// Instead of the loss of an evaluation that has none; empty: it has one. Where a loss counts labels, no accuracy says that none did.
std::string WhyNoLoss(const EvaluationPoint& point);

// The loss of one step is that of one batch: means are over so many steps, a fifth of the run and at most this.
inline constexpr int64_t kMaxMeanSteps = 20;
int64_t MeanSteps(const Run& run);

// The mean over those of the last MeanSteps that have a loss (HasLoss); none without steps. NaN when one of them is, or none has one.
std::optional<double> MeanOfLastSteps(const Run& run);

// The evaluation with the lowest loss, the earliest of equals; null without any that is a number.
const EvaluationPoint* BestEvaluation(const Run& run);

// Of the steps of this start, without evaluations and checkpoints.
double TrainingSeconds(const Run& run);

struct SmoothedPoint {
  int64_t step = 0;
  double seconds = 0;  // of training up to here, earlier starts in the folder included
  double loss = 0;     // mean of this step and those before it, `window` in all, that have a loss; never NaN
};
// From the first step that has a whole window before it; a window with a NaN or infinite loss is left out.
std::vector<SmoothedPoint> SmoothedLoss(const Run& run, int64_t window);

// A loss that all runs reached, and after which step and time each did, by its smoothed loss.
struct LossLevel {
  double loss = 0;
  std::vector<SmoothedPoint> by_run;
};
// The lowest loss that all of them reached, and half, three quarters and nine tenths of the way there from the highest start; falling, and
// none that was reached in the same steps as the next. Empty when the loss of one of them did not fall. `window`: of the smoothed losses.
std::vector<LossLevel> TimeToLoss(const std::vector<Run>& runs, int64_t window);

}  // namespace fusionllm::report
