// How much of a plan's compute time was measured, and how certain the rest is.
//
// Pure functions.
#pragma once

#include <map>
#include <string>

#include "lib/planning/request.h"
#include "lib/scheduler/planned_pipeline.h"

namespace fusionllm::planning {

struct Confidence {
  // Of the forward and backward seconds of all stages.
  double fitted_share = 0;                        // from the regression of op classes, or from other sizes of the very op
  double specified_share = 0;                     // from published figures of GPUs
  double relative_error = 0;                      // by which these two may be off
  std::map<std::string, std::string> arithmetic;  // by name of those GPUs, what their matrix products are reckoned in
  std::string sentence;
};

Confidence ConfidenceOf(const scheduler::PlannedPipeline& plan, const Request& request);

}  // namespace fusionllm::planning
