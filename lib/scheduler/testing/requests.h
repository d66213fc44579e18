// Requests for the tests and benchmarks of this folder: seeded random jobs and networks, and small hand-made ones.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "lib/scheduler/assignment.h"
#include "lib/scheduler/planned_pipeline.h"
#include "lib/scheduler/snapshot.h"

namespace fusionllm::scheduler::testing {

struct ChainSpec {
  int ops = 8;        // beside the two placeholders
  double op_s = 0.1;  // forward; backward takes twice as long
  int64_t cut_bytes = 1'000'000;
  int64_t parameter_bytes = 1'000'000;
};

// tokens -> op0 -> op1 -> ... -> loss, which also reads the placeholder labels. One cost class, no devices.
PlanRequest Chain(const ChainSpec& spec, int micro_batches);

// Adds a device with 16 GiB and links to all others.
void AddDevice(PlanRequest& request, const std::string& site, double time_scale);
// Links every pair: inside a site and across sites; a site-to-site link is one shared resource per direction.
void LinkSites(PlanRequest& request, double inside_bytes_per_s, double inside_latency_s, double across_bytes_per_s,
               double across_latency_s);

// The same network said with sites, in a few links whatever the number of devices.
void JoinSites(PlanRequest& request, double inside_bytes_per_s, double inside_latency_s, double across_bytes_per_s,
               double across_latency_s);

struct TransformerSpec {
  int layers = 12;      // of eight ops: norms, projections, attention, the two halves of the MLP
  double op_s = 0.004;  // forward of one projection from width to width
  int64_t activation_bytes = 1 << 20;
};

// tokens -> embedding -> layers with two residuals each -> loss. Times and bytes in the proportions of GPT-2; no devices.
PlanRequest Transformer(const TransformerSpec& spec, int micro_batches);

// Devices of one to four times the fastest one's time in cities of about `per_city`, drawn from the seed: 0.1 to 1 GB/s inside; between
// two, latency grows and bandwidth falls with the distance (2 to 140 ms, 120 to 3 MB/s), each direction a shared resource of its own.
void AddCities(PlanRequest& request, uint64_t seed, int devices, int per_city, int64_t memory_bytes);

// By site: bytes that the links of the plan send to other sites in a step.
std::map<std::string, int64_t> EgressOf(const PlanRequest& request, const PlannedPipeline& plan);

// Divides the ops into blocks of up to five, of which some run again. Drawn from the seed.
void AddBlocks(PlanRequest& request, uint64_t seed);

struct RandomSpec {
  int max_ops = 8;
  int max_devices = 4;
  int max_micro_batches = 8;
  bool tight_memory = true;
};
// A random DAG with skips and fan-outs on random devices and asymmetric links; the same seed gives the same request.
PlanRequest RandomRequest(uint64_t seed, const RandomSpec& spec);

// The stages of a plan as what a search starts from.
Assignment AssignmentOf(const PlannedPipeline& plan);

}  // namespace fusionllm::scheduler::testing
