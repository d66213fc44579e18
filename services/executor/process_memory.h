// This process's resident memory, from /proc/self/status. Zero where the system does not say.
#pragma once

#include <cstdint>

namespace fusionllm::services {

int64_t ResidentBytes();
int64_t PeakResidentBytes();
// Resets the high-water mark, after giving freed memory back to the system.
void ResetPeak();

}  // namespace fusionllm::services
