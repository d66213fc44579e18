// What the scheduler answers, in the words of lib/broker. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/broker/events.h"

namespace fusionllm::services {

// A plan document. Errors: InvalidArgument when it is none, or not every stage has a device for each replica.
absl::StatusOr<broker::PlanSummary> SummaryOf(const std::string& document);
// The same plan after spares took stages over: what it says of their devices' speed was said of others.
broker::PlanSummary OnDevices(broker::PlanSummary plan, std::vector<std::string> devices);

// What the answer to a question means for the run: Planned or PlanRefused, or AlternativePlanned.
broker::Event PlanEventOf(const broker::RequestPlan& ask, const absl::StatusOr<std::string>& answer);

}  // namespace fusionllm::services
