// A simulated step as a document for users: what stages and links do in it, what limits it, and what changes would make of it.
//
// Plain structs and their JSON text. Pure functions; thread-safe. Numbers must be finite.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "lib/plan/plan.h"
#include "lib/scheduler/timeline.h"

namespace fusionllm::wire {

// The seconds add up to the step's.
struct SimulatedStage {
  int index = 0;
  int replica = 0;  // pipeline
  std::string device;
  double busy_ratio = 0;
  double forward_seconds = 0, backward_seconds = 0, weights_seconds = 0, codec_seconds = 0, update_seconds = 0, idle_seconds = 0;
  double end_seconds = 0;  // part of idle: after the last backward, for tied gradients and the global norm
  int peak_in_flight = 0;
};

struct SimulatedLink {
  std::string src, dst;
  int src_stage = 0, dst_stage = 0;
  int replica = 0;        // pipeline; of the sender
  bool backward = false;  // gradients
  bool sync = false;      // replicas of a stage add up their gradients: one way between neighbours of the chain
  bool tied = false;      // gradients of parameters that both stages use, at the end of the step
  bool norm = false;      // reports to stage 0, or its decision with the global norm
  int64_t messages = 0;
  int64_t bytes = 0;
  double busy_ratio = 0;
  double busy_seconds = 0;    // a message is on its way out
  double queued_seconds = 0;  // messages wait for it, added up
  double latency_seconds = 0;
};

// What several links may share: "link:paris->tokyo", "uplink:paris:out", "port:paris-0:out".
struct SimulatedResource {
  std::string name;
  int64_t bytes = 0;
  double busy_ratio = 0;
};

struct SimulatedBottleneck {
  std::string kind;  // stage, link, resource, latency, sync, tied, norm or update
  std::string name;
  double busy_ratio = 0;  // of two directions: the busier one
  double gain = 0;        // share of the step that is saved if it took a tenth less time
  // link, resource: how busy each direction is. Of the end of a step (tied, norm, update): how much it is and how long it takes, "322 MB
  // uncompressed, 25.7 of 29.7 s"; what would help.
  std::string detail;
  std::string remedy;
};

// Of steps that vary by seed.
struct SimulatedSpread {
  int steps = 0;
  double mean_seconds = 0, p50_seconds = 0, p95_seconds = 0, min_seconds = 0, max_seconds = 0;
};

struct SimulatedStep {
  double step_seconds = 0;
  std::string schedule = "1f1b";  // gpipe, 1f1b, 1f1b-split or interleaved
  int virtual_stages = 1;
  bool runnable = true;  // the runtime has this schedule
  int micro_batches = 1;
  int replicas = 1;         // pipelines side by side
  double sync_seconds = 0;  // part of the step: adding up their gradients, after the slowest has finished
  double loss_cost = 0;     // expected increase of the loss by the codecs of its links, nats per target
  std::vector<SimulatedStage> stages;
  std::vector<SimulatedLink> links;
  std::vector<SimulatedResource> resources;
  std::vector<SimulatedBottleneck> bottlenecks;  // most gain first
  std::string bottleneck;                        // a sentence
  std::optional<SimulatedSpread> spread;
};

struct PlannedStep {
  plan::Plan plan;
  SimulatedStep step;
};

// One change: what the plan takes now, what it would take then, and what a plan made for the change would.
struct WhatIfDocument {
  std::string change;
  double before_seconds = 0;
  std::optional<SimulatedStep> same_plan;
  std::string same_plan_reason;  // why there is none
  std::variant<PlannedStep, plan::PlanError> replanned;
};

struct SimulationDocument {
  plan::Plan plan;
  SimulatedStep step;
  std::vector<WhatIfDocument> what_if;
};

using SimulationResult = std::variant<SimulationDocument, plan::PlanError>;

std::string PrintSimulation(const SimulationResult& answer);

// The Trace Event Format that Perfetto and chrome://tracing read: stages and links are processes, each stage and direction a thread.
std::string PrintTrace(const scheduler::Timeline& timeline);

}  // namespace fusionllm::wire
