// The profile of a GPU that is not here: made from its published figures (estimator/gpu_specs.h), not measured.
//
// Pure function.
#pragma once

#include "lib/estimator/gpu_specs.h"
#include "lib/wire/profile_json.h"

namespace fusionllm::planning {

// Its memory, the rates of all op classes, optimizer and codecs priced by the bytes that they stream. What is left open: reading data takes
// no time, kernels need no workspace. The caller fills name, site, compute_scale and spare.
wire::DeviceProfile ProfileOf(const estimator::GpuSpec& gpu, estimator::Arithmetic arithmetic);

}  // namespace fusionllm::planning
