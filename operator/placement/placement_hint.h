// What the scheduler service's answer says about where a job's executors go best. Pure functions.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "operator/placement/placement.h"

namespace fusionllm::op::placement {

// Reasons of the condition PlacementHint.
inline constexpr char kPlanFound[] = "PlanFound";
inline constexpr char kPlanInfeasible[] = "PlanInfeasible";
inline constexpr char kSchedulerUnavailable[] = "SchedulerUnavailable";
inline constexpr char kNotQueried[] = "NotQueried";  // in this attempt, but in an earlier one

struct PlacementHint {
  Ranking ranking;      // empty: none, for the reason given
  std::string reason;   // CamelCase
  std::string message;  // a sentence, for people
};

// `answer`: a plan document (lib/wire/plan_json.h), or why there is none.
PlacementHint PlacementHintOf(const absl::StatusOr<std::string>& answer);

}  // namespace fusionllm::op::placement
