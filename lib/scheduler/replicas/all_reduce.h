// Seconds in which the replicas of every stage add up their gradients at the end of a step.
//
// The replicas of a stage are a chain c_0 .. c_{D-1}. Gradients go in chunks: c_0 sends each to c_1, which adds its own and sends it on;
// c_{D-1} has the sum and sends it back, and each passes it on towards c_0. Chunks are under way together: a reduction and a broadcast
// along a linear array, pipelined, so that much data takes little longer than one hop of it (for broadcasts: Patarasuk, Yuan and Faraj,
// J. Parallel Distrib. Comput. 68, 2008). Every directed link of the chain carries the bytes once, and every element is added in the order
// of the chain, wherever chunks are cut. The ring all-reduce (Patarasuk and Yuan, J. Parallel Distrib. Comput. 69, 2009) has all devices
// send 1/D of the bytes in each of 2 (D - 1) rounds: 2 (D - 1) / D of the bytes over each of D links, in one direction, and rounds wait for
// the slowest of them.
//
// A chunk makes 2 (D - 1) hops, D - 1 there and D - 1 back. All stages do so at the same time, uncompressed. Of a hop
//   busy   = max(bytes / own rate, bytes of all hops of all chains over a shared resource / its rate)
//   chunk = the same of one chunk: ChunkBytes instead of bytes, that of every hop that shares the resource
// and what a pipeline of the hops takes is
//   sum of latencies + sum of chunks + max(busy - chunk)
// that is, the busy time of the slowest hop and one chunk's on each of the others. The slowest chain decides.
//
// A device inside the chain sends twice, on and back, and so does its port where it has one: all bytes twice, where a ring has
// 2 (D - 1) / D of them.
//
// Pure functions, deterministic.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lib/scheduler/assignment.h"
#include "lib/scheduler/problem.h"

namespace fusionllm::scheduler::replicas {

// One stage: its replicas in the order of the chain, and the gradients each of them has.
struct Chain {
  std::vector<int> devices;
  int64_t gradient_bytes = 0;
  bool operator==(const Chain&) const = default;
};

// Bytes of a chunk when so many are added up: a 16th of them, but no fewer than pay for a message, and no more than a core's cache still
// holds when they are added (collective::kChunkBytes). The plan says it to the executors.
inline constexpr int64_t kTargetChunks = 16;
inline constexpr int64_t kMinChunkBytes = int64_t{64} << 10;
inline constexpr int64_t kMaxChunkBytes = int64_t{256} << 10;
constexpr int64_t ChunkBytes(int64_t bytes) { return std::min(bytes, std::clamp(bytes / kTargetChunks, kMinChunkBytes, kMaxChunkBytes)); }

// What chunks under way take of the memory of the device at `place` of a chain at most. The sender is ahead of the next one by so many
// chunks for each device from there to the end (collective::kChunksAhead), and all of them may wait at one: those that the first has
// sent, or the one before this has, and that have not come back. Two of each neighbour's are in motion and lie there twice, as a message
// and as what the transport sends.
inline constexpr int64_t kChunksAhead = 32;
inline constexpr int64_t kCopiedChunks = 2;
int64_t BytesInFlight(const Chain& chain, size_t place);

// What one hop of a chain does with all chunks together, and a resource that hops share. Times count from when gradients are there.
struct ChainLink {
  int stage = 0;
  std::string src, dst;  // devices
  int64_t chunks = 0;
  int64_t bytes = 0;
  double busy_s = 0;     // waiting for others on what it shares included
  double latency_s = 0;  // of a chunk
  double begin_s = 0;    // the first chunk sets out
  double end_s = 0;      // the last one is sent; it arrives a latency later
  bool operator==(const ChainLink&) const = default;
};
struct ChainResource {
  std::string name;
  int64_t bytes = 0;
  double busy_s = 0;
  bool operator==(const ChainResource&) const = default;
};
struct AllReduceUsage {
  std::vector<ChainLink> links;  // by stage, in the order of a chunk's way: to the end of the chain and back
  std::vector<ChainResource> resources;
  bool operator==(const AllReduceUsage&) const = default;
};
// Precondition: every link exists. AllReduceSeconds is the largest end_s + latency_s.
AllReduceUsage UsageOf(const Problem& problem, std::span<const Chain> chains);

// Infinite when the network lacks a link between neighbours, either way. Chains of one device and of no bytes take no time.
double AllReduceSeconds(const Problem& problem, std::span<const Chain> chains);

// Bytes that all chains put on links together.
int64_t AllReduceBytes(std::span<const Chain> chains);

// The chain with the least seconds, alone on the network, and of equally fast ones the first: the order given, then by permutation. Of all
// orders up to kMaxTriedOrders devices; beyond, of those that go to the nearest device left, from every start, and up to
// kMaxImprovedDevices of what reversing runs of one makes faster, and with full effort, some milliseconds, of some like it. A chain
// backwards has the same hops and takes the same time, so of the two one is tried, links of different rates each way or not.
inline constexpr int kMaxTriedOrders = 6;
inline constexpr int kMaxImprovedDevices = 16;
inline constexpr double kSameSeconds = 1e-9;  // relative: sums of the same hops in another order
Chain FastestChain(const Problem& problem, std::span<const int> devices, int64_t gradient_bytes, Effort effort = Effort::kFull);

// Gradients of positions [begin, end): a tied parameter's once for each of its uses there, as replicas add them up use by use (adr/0020).
int64_t GradientBytes(const Problem& problem, int begin, int end);

}  // namespace fusionllm::scheduler::replicas
