// A running job and the hardware of now turned into a decision: stay with the plan or leave it, for which, and what moves.
//
// Pure but for the CPU clock (search_cpu_seconds of the plan inside). Blocks for the search: milliseconds to a few seconds. Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/planning/profiles.h"
#include "lib/planning/request.h"
#include "lib/scheduler/replan/replan.h"
#include "lib/wire/replan_json.h"
#include "lib/workload/workload.h"

namespace fusionllm::planning {

// Every stage of a new plan fits its device by the runtime's own memory sums; recomputation stays what it is.
// Errors: InvalidArgument for a plan of another model, and those of scheduler::replan::Replan and MakeRequest.
absl::StatusOr<wire::ReplanResult> ReplanWorkload(const workload::Workload& workload, const Profiles& profiles, const plan::Plan& running,
                                                  const PlanOptions& options, const scheduler::replan::ReplanOptions& replan_options);

// Why the plan is as it is, a sentence for each stage, link, exchange of tied gradients and device left out: as the planner of now, with
// these profiles, sees its stages. Codecs are those that it would choose.
// Errors: as ReplanWorkload; FailedPrecondition when the plan cannot run on this hardware, saying why.
absl::StatusOr<std::vector<std::string>> ExplainPlan(const workload::Workload& workload, const Profiles& profiles, const plan::Plan& plan,
                                                     const PlanOptions& options);

}  // namespace fusionllm::planning
