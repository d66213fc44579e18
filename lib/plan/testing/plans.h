// Plans for tests: consistent, with every field set that a plan of its kind has.
#pragma once

#include "lib/plan/plan.h"

namespace fusionllm::plan::testing {

// On paris-0 and tokyo-0, with a lossy codec between them and a tied parameter.
Plan TwoStages();
// The same stages twice, side by side: the second pipeline is on paris-1 and tokyo-1.
Plan TwoPipelines();

}  // namespace fusionllm::plan::testing
