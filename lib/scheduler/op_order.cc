#include "lib/scheduler/op_order.h"

#include <algorithm>

namespace fusionllm::scheduler {
namespace {

struct Neighbours {
  std::vector<std::vector<int>> before, after;
};

Neighbours NeighboursOf(const PlanRequest& request) {
  Neighbours n{.before = std::vector<std::vector<int>>(request.ops.size()), .after = std::vector<std::vector<int>>(request.ops.size())};
  for (const ValueNode& value : request.values) {
    for (int consumer : value.consumers) {
      n.before[consumer].push_back(value.producer);
      n.after[value.producer].push_back(consumer);
    }
  }
  return n;
}

// Emits ops of `sequence` in order, but placeholders first and sources right before the first op that reads them.
std::vector<int> PlaceSources(const PlanRequest& request, const Neighbours& neighbours, const std::vector<int>& sequence) {
  std::vector<int> order;
  order.reserve(sequence.size());
  for (int op : sequence) {
    if (request.ops[op].placeholder) order.push_back(op);
  }
  std::vector<char> emitted(request.ops.size(), 0);
  const auto is_source = [&](int op) { return neighbours.before[op].empty() && !neighbours.after[op].empty(); };
  for (int op : sequence) {
    if (request.ops[op].placeholder || is_source(op)) continue;
    for (int input : neighbours.before[op]) {
      if (!emitted[input] && !request.ops[input].placeholder && is_source(input)) {
        order.push_back(input);
        emitted[input] = 1;
      }
    }
    order.push_back(op);
    emitted[op] = 1;
  }
  return order;
}

// Reverse post-order of a depth-first walk against the edges: an op comes right after the branch that leads to it is complete.
std::vector<int> DepthFirst(const PlanRequest& request, const Neighbours& neighbours) {
  std::vector<int> order;
  std::vector<char> seen(request.ops.size(), 0);
  std::vector<std::pair<int, size_t>> stack;
  for (size_t root = 0; root < request.ops.size(); ++root) {
    if (!neighbours.after[root].empty() || seen[root]) continue;
    seen[root] = 1;
    stack.push_back({static_cast<int>(root), 0});
    while (!stack.empty()) {
      auto& [op, next] = stack.back();
      if (next < neighbours.before[op].size()) {
        const int input = neighbours.before[op][next++];
        if (!seen[input]) {
          seen[input] = 1;
          stack.push_back({input, 0});
        }
      } else {
        order.push_back(op);
        stack.pop_back();
      }
    }
  }
  return order;
}

}  // namespace

double AliveBytes(const PlanRequest& request, const std::vector<int>& order) {
  std::vector<int> position(order.size());
  for (size_t p = 0; p < order.size(); ++p) position[order[p]] = static_cast<int>(p);
  double alive = 0;
  for (const ValueNode& value : request.values) {
    int last = position[value.producer];
    for (int consumer : value.consumers) last = std::max(last, position[consumer]);
    alive += static_cast<double>(value.bytes) * (last - position[value.producer]);
  }
  return alive;
}

std::vector<int> OrderOps(const PlanRequest& request) {
  const Neighbours neighbours = NeighboursOf(request);
  std::vector<int> given(request.ops.size());
  for (size_t op = 0; op < given.size(); ++op) given[op] = static_cast<int>(op);
  std::vector<int> as_given = PlaceSources(request, neighbours, given);
  std::vector<int> depth_first = PlaceSources(request, neighbours, DepthFirst(request, neighbours));
  return AliveBytes(request, depth_first) < AliveBytes(request, as_given) ? depth_first : as_given;
}

// Two neighbours without an edge between them could change places, and only neighbours can.
bool IsOnlyOrder(const PlanRequest& request, const std::vector<int>& order) {
  std::vector<int> position(order.size());
  for (size_t p = 0; p < order.size(); ++p) position[order[p]] = static_cast<int>(p);
  std::vector<char> follows(order.size(), 0);  // by position: reads what the op before makes
  for (const ValueNode& value : request.values) {
    for (const int consumer : value.consumers) {
      if (position[consumer] == position[value.producer] + 1) follows[position[consumer]] = 1;
    }
  }
  size_t first = 0;
  while (first < order.size() && request.ops[order[first]].placeholder) ++first;
  return std::all_of(follows.begin() + static_cast<std::ptrdiff_t>(std::min(first + 1, follows.size())), follows.end(),
                     [](char it_does) { return it_does != 0; });
}

}  // namespace fusionllm::scheduler
