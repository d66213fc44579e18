// The plan document: what `fusionctl plan` prints, the scheduler service answers and executors are assigned. JSON text, one line.
//
// The one conversion between plans and text. Equal plans give equal bytes (sorted keys, shortest numbers that read back exactly); reading
// trusts nothing. Pure functions; thread-safe. Limits: kMaxPlanStages, kMaxPlanOps, kMaxDocumentBytes of text.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/plan/plan.h"

namespace fusionllm::wire {

inline constexpr int kMaxPlanStages = 10'000;  // of as many devices, the planner's limit
inline constexpr int kMaxPlanOps = 20'000;
inline constexpr int kMaxPlanMicroBatches = 1'000'000;

// Numbers must be finite.
std::string PrintPlan(const plan::PlanResult& answer);

// Errors: InvalidArgument naming the field ("plan.stages[1].in_flight: ..."). What is returned is consistent: stages are numbered in order,
// each has ops and a device for each replica, no op stands twice, links join stages that exist and name their devices of one pipeline,
// codecs parse.
absl::StatusOr<plan::PlanResult> ParsePlan(absl::string_view text);

}  // namespace fusionllm::wire
