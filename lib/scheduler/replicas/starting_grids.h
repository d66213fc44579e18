// Allocations to begin a search with: which devices make the stages and the pipelines of a grid.
//
// Pure functions of problem, shape and seed.
#pragma once

#include <cstdint>
#include <vector>

#include "lib/scheduler/problem.h"

namespace fusionllm::scheduler::replicas {

using DeviceGrid = std::vector<std::vector<int>>;  // [stage][pipeline]

struct GridShape {
  int stages = 1;
  int pipelines = 1;
  bool operator==(const GridShape&) const = default;
};

// Sites as stage groups (the replicas of a stage inside one site, as far as there are enough devices), sites as pipelines (a whole pipeline
// inside one), the fastest devices in order of speed laid along stages and along pipelines, and those with the most memory along stages. No
// repetition. Precondition: the shape asks
// for no more devices than are usable.
std::vector<DeviceGrid> SimpleGrids(const Problem& problem, const GridShape& shape);

// OP-Fence's answer to DT-FM's allocation problem (lib/scheduler/grid) on the job's bytes, for the fastest devices. Empty for one stage or
// one pipeline, where there is nothing to align, and for networks with pairs that cannot talk.
std::vector<DeviceGrid> FenceGrids(const Problem& problem, const GridShape& shape, uint64_t seed);

// Seconds of the whole model, one micro-batch, on a device.
double WholeModelSeconds(const Problem& problem, int device);
// Usable devices, the fastest first.
std::vector<int> BySpeed(const Problem& problem);

}  // namespace fusionllm::scheduler::replicas
