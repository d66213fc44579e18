// The curves of a report as HTML: loss by step and by time with validation, how long a loss took, learning rate and gradient norm.
// Pure functions.
#pragma once

#include <string>
#include <vector>

#include "lib/report/run_record.h"

namespace fusionllm::report {

// One run: each step's loss, their mean, validation. Several: a curve for each. Empty text when there is no loss to show.
std::string LossCurves(const std::vector<Run>& runs);

// Learning rate and gradient norm by step. Empty text where neither changes anything: no steps.
std::string TrainingCurves(const Run& run);

}  // namespace fusionllm::report
