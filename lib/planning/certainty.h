// How much of a plan's compute time was measured, and how certain the rest is.
//
// Pure functions.
#pragma once

#include <string>

#include "lib/planning/request.h"
#include "lib/scheduler/plan.h"

namespace fusionllm::planning {

struct Certainty {
  double fitted_share = 0;    // of the forward and backward seconds of all stages: from the regression of op classes
  double relative_error = 0;  // by which the fitted share may be off
  std::string sentence;
};

Certainty CertaintyOf(const scheduler::Plan& plan, const Request& request);

}  // namespace fusionllm::planning
