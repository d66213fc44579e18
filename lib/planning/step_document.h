// A simulation in the words of the document: names instead of numbers, shares of the step, and one sentence on what limits it.
//
// Pure functions.
#pragma once

#include <string>
#include <vector>

#include "lib/scheduler/planned_pipeline.h"
#include "lib/scheduler/simulation.h"
#include "lib/wire/simulation_json.h"
#include "lib/workload/workload.h"

namespace fusionllm::planning {

// A tenth less of a thing that limits a step shortens it by this share at least. Less is no limit: the step is made of many things.
inline constexpr double kMinBottleneckGain = 0.02;

struct StepText {
  std::string schedule;
  bool runnable = true;
  std::vector<std::string> devices;  // of each stage
  struct Tied {
    std::string parameter;
    std::string amount;  // "322 MB uncompressed": of each message
    std::string remedy;
  };
  std::vector<Tied> tied;  // by exchange
  // What would help where a link, or its latency, limits the step; empty: nothing that a job can say.
  std::string link_remedy;
  std::string tied_link_remedy;  // of a link that is busy with tied gradients for much of the step
  std::string latency_remedy;
};

StepText StepTextOf(const scheduler::PlannedPipeline& plan, const workload::Workload& workload);

// Of each kind of limit: more are neither read nor likely.
inline constexpr int kMaxProbedBottlenecks = 16;

// `stop` as in FindBottlenecks; `probed`: bottlenecks of each kind that are tried.
wire::SimulatedStep StepDocument(const scheduler::PipelineInput& input, const scheduler::Simulation& simulation, const StepText& text,
                                 const scheduler::StopFunction& stop, int probed = kMaxProbedBottlenecks);

// What limits the step, of whose limits the first has the most gain, in a sentence. Where none gains anything to speak of, a second
// sentence says what is busy most of the step. `runner_up`: its index among the limits; none: 0.
std::string BottleneckSentence(const wire::SimulatedStep& step, size_t runner_up);

wire::SimulatedSpread SpreadDocument(const scheduler::StepSpread& spread);

}  // namespace fusionllm::planning
