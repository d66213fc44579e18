// What the scheduler answers, in the words of lib/broker. Pure functions.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "lib/broker/events.h"

namespace fusionllm::services {

// A plan document, on the devices that it names. Errors: InvalidArgument when it is none, or a refusal.
absl::StatusOr<broker::RunPlan> ReadRunPlan(const std::string& document);

// What the answer to a question means for the run: Planned or PlanRefused, or AlternativePlanned.
broker::Event PlanEventOf(const broker::RequestPlan& ask, const absl::StatusOr<std::string>& answer);

}  // namespace fusionllm::services
