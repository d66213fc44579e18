// What a user should know of a plan before training by it: stages that do nothing, devices that wait, degraded links, codecs that are not
// those the job names. Pure; thread-safe.
#pragma once

#include <vector>

#include "lib/plan/plan.h"
#include "lib/planning/plan_of_pipeline.h"
#include "lib/wire/simulation_json.h"

namespace fusionllm::planning {

// `step`: of that plan. Of stages and links none for a plan of one stage, or of too many to read about.
void AddWarnings(const scheduler::PlannedPipeline& plan, const PlanContext& context, const wire::SimulatedStep& step,
                 std::vector<plan::Warning>& warnings);

}  // namespace fusionllm::planning
