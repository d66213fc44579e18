// What is said where a stage does not fit into its device.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "lib/plan/plan.h"

namespace fusionllm::services {

// If `status` says that memory is short, the same with what the plan has counted on beside it, and with what can be done; else `status`.
// `device_bytes`: of the device, as the plan knows it; 0: unknown.
absl::Status AnnotateOutOfMemory(const absl::Status& status, const plan::Stage& stage, int64_t device_bytes);

}  // namespace fusionllm::services
