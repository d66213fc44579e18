// Jobs of few ops on few devices, of every kind that the planners must get right: what exact and op-fence are compared on.
//
// Chains with skip connections, fan-outs and tied parameters; devices of two kinds and several speeds, with unequal memory, at one to three
// sites; asymmetric links, shared links between sites and shared uplinks; GPipe and 1F1B, given depths, recomputation, pins, exclusions,
// spares, given numbers of stages; with and without compression. A regime says what is scarce.
#pragma once

#include <cstdint>
#include <string>

#include "lib/scheduler/snapshot.h"

namespace fusionllm::scheduler::testing {

struct SmallSpec {
  int min_ops = 2, max_ops = 60;  // beside two placeholders
  int min_devices = 2, max_devices = 8;
};

struct SmallInstance {
  std::string regime;  // "compute", "links", "latency", "memory", "mixed"
  bool compressed = false;
  PlanRequest request;  // its codec policy is static
};

// The same seed gives the same job.
SmallInstance DrawSmallInstance(uint64_t seed, const SmallSpec& spec);

}  // namespace fusionllm::scheduler::testing
