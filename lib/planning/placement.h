// From the op names of a plan document back to the ops of a graph.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "lib/autodiff/training_graph.h"
#include "lib/wire/plan_json.h"

namespace fusionllm::planning {

// The stage of each op of the training graph, as runtime::BuildStageProgram wants it. Errors: InvalidArgument when the plan names an op
// that the graph lacks or leaves one out.
absl::StatusOr<std::vector<int>> PlacementOf(const wire::PlanDocument& plan, const autodiff::TrainingGraph& training);

}  // namespace fusionllm::planning
