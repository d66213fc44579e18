// Why single devices that a job asks for, by pins or by where its data are, cannot be had. Internal to lib/scheduler.
#pragma once

#include <optional>
#include <string>

#include "lib/scheduler/planned_pipeline.h"
#include "lib/scheduler/problem.h"

namespace fusionllm::scheduler {

// What has been asked of single devices, in words: pins, the place of the data, or both.
std::string DeviceConstraints(const PlanRequest& request);

// Of a device whose memory is below what an executor takes before its first op: how much that is, and how much it has.
std::string ProcessShortfall(const PlanRequest& request, int device);
Shortfall ProcessMemory(const PlanRequest& request, int device);

// Why pins and the place of the data cannot be had with the number of stages, or with the memory of the devices they name; nothing: none
// can tell without a search. For problems that have pins (Problem::HasPins).
std::optional<PlanError> PinShortfall(const Problem& problem);

}  // namespace fusionllm::scheduler
