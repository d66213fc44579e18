// What a user asks of a plan first, one sentence each. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "lib/plan/plan.h"

namespace fusionllm::report {

// Size of model and step, rate and time of all steps, bytes between sites, what limits the step, what compression may cost, memory. Nothing
// about what is unknown.
std::vector<std::string> PlanSentences(const plan::Plan& plan);

// Lower bounds of a step; 0: none of that kind holds.
struct StepBounds {
  double step_s = 0;        // of the plan
  double compute_s = 0;     // devices never wait
  double link_s = 0;        // links never wait
  bool is_optimal = false;  // a search ruled out every faster plan
  int64_t stages = 1;
};
// What no plan can go below, and why a plan is above it, so that a distance to the bound is not taken for a bad plan. Empty: no bound
// holds.
std::string BoundSentence(const StepBounds& bounds);

// What a plan says of its limit, to follow a title like "limit": "The step is limited by X: .." is "X: ..".
std::string LimitPhrase(absl::string_view bottleneck);

// "warning: REASON: MESSAGE" each.
std::vector<std::string> PlanWarnings(const plan::Plan& plan);

}  // namespace fusionllm::report
