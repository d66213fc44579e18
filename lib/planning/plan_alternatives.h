// What else a job could ask for: a step with the number of stages that the planner would choose, and one with fewer micro-batches in
// flight.
#pragma once

#include "lib/plan/plan.h"
#include "lib/planning/request.h"

namespace fusionllm::planning {

// Weighs both by quick searches, where the job asks for one pipeline and there are few devices, and puts into the document of its plan: the
// warning `OtherStageCountFaster`, where the job names its stages and others would make a step much faster at no higher expected loss, and
// fewer_in_flight, where depth takes much memory by choice. `workload` and `profiles`: at the micro-batch size of the plan. What cannot be
// weighed is left out; the plan stands.
void AddAlternatives(const workload::Workload& workload, const Profiles& profiles, const PlanOptions& options, plan::Plan& document);

}  // namespace fusionllm::planning
