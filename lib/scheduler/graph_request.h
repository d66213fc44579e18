// Joins the estimator's costs of a training graph with a plan request: what every caller that plans a real model needs.
//
// Pure function; the request's devices, links and constraints are the caller's.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "lib/autodiff/training_graph.h"
#include "lib/estimator/graph_cost.h"
#include "lib/scheduler/snapshot.h"

namespace fusionllm::scheduler {

// Fills ops, values and tied of `request`. Op indices are the forward op ids of the graph. `seconds_by_class[c]` are the times of the
// devices of cost class c, as SecondsByOp gives them; time_scale = 1 / compute_scale lets devices that differ in scale alone share a class.
// Errors: InvalidArgument when a class does not price every op.
absl::Status AddGraph(const autodiff::TrainingGraph& training, const estimator::GraphCosts& costs,
                      const std::vector<std::vector<estimator::OpSeconds>>& seconds_by_class, PlanRequest& request);

}  // namespace fusionllm::scheduler
