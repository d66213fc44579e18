// A simulation in the words of the document: names instead of numbers, shares of the step, and one sentence on what limits it.
//
// Pure functions.
#pragma once

#include <string>
#include <vector>

#include "lib/scheduler/simulation.h"
#include "lib/wire/simulation_json.h"

namespace fusionllm::planning {

struct StepText {
  std::string schedule;
  bool runnable = true;
  std::vector<std::string> devices;  // of each stage
};

// `stop` as in FindLimits.
wire::SimulatedStep StepDocument(const scheduler::PipelineInput& input, const scheduler::Simulation& simulation, const StepText& text,
                                 const scheduler::StopFunction& stop);

// What limits a step, most gain first, in a sentence. `runner_up`: its index among the limits; none: 0.
std::string LimitSentence(const std::vector<wire::SimulatedLimit>& limits, size_t runner_up);

wire::SimulatedSpread SpreadDocument(const scheduler::StepSpread& spread);

}  // namespace fusionllm::planning
