// What else a job could ask for: a step with the number of stages that the planner would choose, and one with fewer micro-batches in
// flight.
#pragma once

#include "absl/status/status.h"
#include "lib/planning/request.h"
#include "lib/wire/plan_json.h"

namespace fusionllm::planning {

// Weighs both by quick searches, where there are few devices, and puts them into the document of the plan of one pipeline: the warning
// `StagesNotFastest`, where the job names its stages and others would make a step much faster, and fewer_in_flight, where depth takes much
// memory by choice. `workload` and `profiles`: at the micro-batch size of the plan. Errors: those of PlanGivenMicroBatchSize.
absl::Status AddAlternatives(const workload::Workload& workload, const Profiles& profiles, const PlanOptions& options,
                             wire::PlanDocument& document);

}  // namespace fusionllm::planning
