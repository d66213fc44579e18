// Seconds in which the replicas of every stage add up their gradients at the end of a step.
//
// A ring all-reduce among D devices takes 2 (D - 1) rounds, D - 1 to reduce and D - 1 to gather, in each of which every device sends 1/D of
// the bytes to the next one: 2 (D - 1) / D of the bytes over each link of the ring (Patarasuk and Yuan, J. Parallel Distrib. Comput. 69,
// 2009; what DT-FM's section 3.2 builds on). All stages do so at the same time, uncompressed. A link of a ring takes
//   2 (D - 1) latency + max(2 (D - 1) / D bytes / own rate, bytes of all links of all rings over a shared resource / its rate)
// and the slowest link decides.
//
// Pure functions, deterministic.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lib/scheduler/problem.h"

namespace fusionllm::scheduler::replicas {

// One stage: its replicas in the order of the ring, and the gradients each of them has.
struct Ring {
  std::vector<int> devices;
  int64_t gradient_bytes = 0;
  bool operator==(const Ring&) const = default;
};

// What a link of a ring does in all rounds together, and a resource that links of rings share.
struct RingLink {
  int stage = 0;
  std::string src, dst;  // devices
  int rounds = 0;
  int64_t bytes = 0;
  double busy_s = 0;     // waiting for others on what it shares included
  double latency_s = 0;  // of all rounds
  bool operator==(const RingLink&) const = default;
};
struct RingResource {
  std::string name;
  int64_t bytes = 0;
  double busy_s = 0;
  bool operator==(const RingResource&) const = default;
};
struct AllReduceUse {
  std::vector<RingLink> links;  // by stage, in the order of the ring
  std::vector<RingResource> resources;
  bool operator==(const AllReduceUse&) const = default;
};
// Precondition: every link exists. AllReduceSeconds is the largest busy_s + latency_s.
AllReduceUse UseOf(const Problem& problem, std::span<const Ring> rings);

// Infinite when a ring has a link that the network lacks. Rings of one device and of no bytes take no time.
double AllReduceSeconds(const Problem& problem, std::span<const Ring> rings);

// Bytes that all rings put on links together.
int64_t AllReduceBytes(std::span<const Ring> rings);

// The ring with the least seconds, alone on the network: of all orders up to kMostTriedOrders devices, beyond of those that go to the
// nearest device left, from every start. The first device stays first.
inline constexpr int kMostTriedOrders = 6;
Ring FastestRing(const Problem& problem, std::span<const int> devices, int64_t gradient_bytes);

// Gradients of positions [begin, end), those of tied parameters once.
int64_t GradientBytes(const Problem& problem, int begin, int end);

}  // namespace fusionllm::scheduler::replicas
