// What a user asks of a plan first, one sentence each. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace fusionllm::report {

// As the plan document has them; 0 and empty: unknown.
struct PlanFigures {
  std::string unit = "tokens";  // or "images"
  double step_s = 0;
  double tokens_per_s = 0;
  int64_t parameters = 0;       // that are trained
  int64_t tokens_per_step = 0;  // of `unit`
  int64_t steps = 0;
  int64_t site_bytes = 0;  // between sites in a step
  bool compressed = false;
  double loss_cost = 0;
  std::string loss_cost_source;
  std::string bottleneck;
  struct Memory {
    std::string device;
    int64_t bytes = 0;
    int64_t of_bytes = 0;
  };
  std::vector<Memory> memory;
  struct FewerInFlight {  // what a step would take, and the stage that needs most; 0: not weighed
    int in_flight = 0;
    double step_s = 0;
    int64_t bytes = 0;
  } fewer_in_flight;
  struct Warning {
    std::string reason;
    std::string message;
  };
  std::vector<Warning> warnings;
};

// Size of model and step, rate and time of all steps, bytes between sites, what limits the step, what compression may cost, memory. Nothing
// about what is unknown.
std::vector<std::string> PlanSentences(const PlanFigures& figures);

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
std::vector<std::string> PlanWarnings(const PlanFigures& figures);

}  // namespace fusionllm::report
