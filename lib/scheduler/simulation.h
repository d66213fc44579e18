// What a simulated step does to stages and links, those that are shared too, and how it varies. What limits it: bottlenecks.h.
//
// Pure functions of their arguments; see pipeline_model.h for what is modelled. Memory: as many numbers as there are stages, links and
// shared links; no spans are kept.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lib/scheduler/pipeline_model.h"
#include "lib/scheduler/problem.h"
#include "lib/scheduler/step_noise.h"

namespace fusionllm::scheduler {

// One worker in one step; the seconds add up to the step's.
struct StageUsage {
  double forward_s = 0;  // codecs not included
  double backward_s = 0;
  double weights_s = 0;  // of a split backward: gradients of weights
  double codec_s = 0;
  double update_s = 0;
  double idle_s = 0;       // waiting for messages, for the end of the step, for the next
  double end_s = 0;        // part of idle_s: after the last backward, for tied gradients and the decision of stage 0
  int peak_in_flight = 0;  // forwards whose backward was not done; interleaved: of its stages, each a part of a micro-batch
  double busy_s() const { return forward_s + backward_s + weights_s + codec_s + update_s; }
};

// What one worker sends another in one step.
struct LinkUsage {
  enum class Kind { kActivations, kGradients, kTied, kNorm };  // kNorm: reports to stage 0, and its decision
  int src = 0;                                                 // worker
  int dst = 0;
  Kind kind = Kind::kActivations;
  int64_t messages = 0;
  int64_t bytes = 0;
  double busy_s = 0;    // some message is on its links
  double queued_s = 0;  // all messages together waited for a link
  double latency_s = 0;
};

// A link or port that several pairs may use.
struct SharedLinkUsage {
  int shared_link = 0;
  std::string name;
  int pairs = 0;  // directions of links that pass it
  int64_t bytes = 0;
  double busy_s = 0;
};

struct Simulation {
  double step_s = 0;
  bool complete = true;  // see PipelineResult
  std::vector<StageUsage> stages;
  std::vector<LinkUsage> links;  // ascending by (src, dst, kind)
  std::vector<SharedLinkUsage> shared;
};

// `shared_links` as in StepModel. Spans also go to `spans`, if given.
Simulation Simulate(const PipelineInput& input, const std::vector<std::string>& shared_links, const PassNoise* noise = nullptr,
                    SpanSink* spans = nullptr);

const char* Name(LinkUsage::Kind kind);  // "activations", "gradients", "tied gradients", "global norm"

struct StepSpread {
  int steps = 0;
  double mean_s = 0, p50_s = 0, p95_s = 0, min_s = 0, max_s = 0;
};

inline constexpr int kMaxSimulatedSteps = 100'000;

// Steps 0 .. steps - 1, each on its own. Returns early once `stop` says so.
std::vector<double> SimulateStepSeconds(const PipelineInput& input, const NoiseSpec& noise, int steps, const StopFunction& stop = nullptr);
// Percentiles are of the nearest rank.
StepSpread SpreadOf(std::vector<double> seconds);

}  // namespace fusionllm::scheduler
