// The order ideals of a graph: sets of ops that hold, with each op, all ops it reads from. A pipeline of stages in a row can be cut at
// these sets and at no others; one topological order has only some of them as its prefixes, all of them where the graph is a chain.
//
// Pure functions over a Problem. Cost and memory: ideals x (values of an op + ops / 64 words). A graph that is nearly a chain, as ResNet
// and GPT-2 are, has little more ideals than ops; parallel branches multiply.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "lib/scheduler/problem.h"

namespace fusionllm::scheduler {

struct Ideal {
  std::vector<uint64_t> ops;  // bit p: holds the op at position p of the problem
  int count = 0;              // of ops
  int parent = -1;            // index of one with an op less; -1: the first
  int added = -1;             // position of that op
  CutTraffic bytes;           // alive behind it
};

// Ascending by count, from the placeholders alone to all ops; nothing when there are more than `max`. An op that reads nothing stays
// behind the one before it in the problem's order, as there (op_order.h): it belongs to its reader.
std::optional<std::vector<Ideal>> IdealsOf(const Problem& problem, size_t max);

bool Holds(const Ideal& larger, const Ideal& smaller);
bool Holds(const Ideal& ideal, int position);

}  // namespace fusionllm::scheduler
