// The bottlenecks of a simulated step: how much shorter it would be if one thing took a tenth less time.
//
// Pure functions of their arguments.
#pragma once

#include <string>
#include <vector>

#include "lib/scheduler/pipeline_model.h"
#include "lib/scheduler/problem.h"
#include "lib/scheduler/simulation.h"

namespace fusionllm::scheduler {

inline constexpr double kProbedSpeedUp = 0.1;

struct Bottleneck {
  // kLink: all that two workers send each other; where one direction is why, what goes that way. kShared, kLatency: likewise both
  // directions, or one. kTied: the gradients of one exchange, all its messages. kNorm: every stage's report and the decision. kUpdate: the
  // optimizer, in all stages.
  enum class Kind { kStage, kLink, kShared, kLatency, kTied, kNorm, kUpdate };
  Kind kind = Kind::kStage;
  int index = 0;     // of Simulation::stages, links (kLink, kLatency: one of several of a direction), shared; kTied: the exchange; else 0
  int reverse = -1;  // kLink, kShared, kLatency: the way back, indexed likewise; -1: `index` alone
  // Of the step; kLink, kShared: of `index`, the busier direction; kLatency: of one crossing; kTied, kNorm, kUpdate: of the longest.
  double busy_ratio = 0;
  double reverse_busy_ratio = 0;
  double tied_ratio = 0;  // kLink: part of busy_ratio that carries tied gradients
  double gain = 0;        // 1 - step with it a tenth faster / step
};

// The stages, links, shared links, latencies and parts of the step's end that are probed (the `max_per_kind` busiest of each kind), most
// gain first; but tied gradients stand before the shared links on which they take most of the time, since they are why these are slow. The
// two directions of a link, of a shared link and of a latency are one thing, since they are bought and repaired as one; if one of them
// brings nearly all of the gain, it is named alone. Cost: a simulation each, two more for what has two directions. Returns early, with what
// it has, once `stop` says so.
std::vector<Bottleneck> FindBottlenecks(const PipelineInput& input, const Simulation& simulation, int max_per_kind,
                                        const StopFunction& stop = nullptr);

// "stage 1 on g0", "g0 <-> b0 (activations, gradients, tied gradients)", "link:paris<->tokyo", "the tied gradients of wte". `devices` by
// worker, `tied` by exchange: parameters.
std::string NameOf(const Bottleneck& bottleneck, const Simulation& simulation, const std::vector<std::string>& devices,
                   const std::vector<std::string>& tied);

// Whether both are about the same place: a link and a shared link that it passes, tied gradients and what they cross.
bool SamePlace(const Bottleneck& a, const Bottleneck& b, const PipelineInput& input, const Simulation& simulation);

}  // namespace fusionllm::scheduler
