// The snapshot that a planner works on, made from a resolved job and measured devices.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/estimator/cost_model.h"
#include "lib/estimator/graph_cost.h"
#include "lib/planning/profiles.h"
#include "lib/runtime/stage_program.h"
#include "lib/scheduler/snapshot.h"
#include "lib/workload/workload.h"

namespace fusionllm::planning {

struct PlanOptions {
  std::string strategy;  // empty: the job's
  uint64_t seed = 0;
  // Instead of spec.strategy.stages and .inFlight; 0: the planner's choice.
  std::optional<int> stages, max_in_flight;
  std::vector<std::string> exclude;                      // devices to leave out, in addition to the job's
  std::string data_device;                               // has the training data and runs the first stage; empty: any may
  int64_t search_budget = scheduler::kFullSearchBudget;  // PlanRequest's
  bool alternatives = false;                             // weigh what else the job could ask for (plan_alternatives.h)
  bool explain = false;                                  // keep the planner's sentences in the document
  std::function<bool()> stop;  // true from when the plan is not wanted any more; asked by the planning thread, often
};

struct Request {
  scheduler::PlanRequest request;  // everything but the codec policy; devices keep their order
  // What it was priced by, both by cost class.
  std::vector<estimator::CostModel> machines;
  std::vector<std::vector<estimator::OpSeconds>> seconds;
  std::vector<std::string> specifications;  // the GPU whose published figures they are; empty: measured
  std::vector<std::string> arithmetic;      // of that GPU's matrix products
};

// Errors: InvalidArgument for profiles without times or beyond the scheduler's limits, and for a job beyond them, naming its field.
absl::StatusOr<Request> MakeRequest(const workload::Workload& workload, const Profiles& profiles, const PlanOptions& options,
                                    runtime::Recompute recompute);

}  // namespace fusionllm::planning
