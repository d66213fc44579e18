#include "lib/runtime/memory_plan.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "lib/tensor/tensor.h"

namespace fusionllm::runtime {
namespace {

size_t AlignUp(size_t bytes) { return (bytes + tensor::kAlignment - 1) / tensor::kAlignment * tensor::kAlignment; }

bool LifetimesOverlap(const Lifetime& a, const Lifetime& b) { return a.first <= b.last && b.first <= a.last; }

}  // namespace

MemoryPlan PlanMemory(const std::vector<Lifetime>& lifetimes) {
  std::vector<int> order(lifetimes.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return lifetimes[a].bytes > lifetimes[b].bytes; });

  MemoryPlan plan{.offsets = std::vector<size_t>(lifetimes.size(), 0)};
  std::vector<int> placed;  // sorted by offset
  for (const int index : order) {
    const Lifetime& lifetime = lifetimes[index];
    const size_t bytes = AlignUp(lifetime.bytes);
    size_t best_offset = std::numeric_limits<size_t>::max();
    size_t best_gap = std::numeric_limits<size_t>::max();
    size_t end = 0;  // of the overlapping tensors seen so far
    for (const int other : placed) {
      if (!LifetimesOverlap(lifetime, lifetimes[other])) continue;
      const size_t offset = plan.offsets[other];
      if (offset > end && offset - end >= bytes && offset - end < best_gap) {
        best_gap = offset - end;
        best_offset = end;
      }
      end = std::max(end, offset + AlignUp(lifetimes[other].bytes));
    }
    if (best_gap == std::numeric_limits<size_t>::max()) best_offset = end;
    plan.offsets[index] = best_offset;
    plan.arena_bytes = std::max(plan.arena_bytes, best_offset + bytes);
    const auto at = std::upper_bound(placed.begin(), placed.end(), index, [&](int a, int b) { return plan.offsets[a] < plan.offsets[b]; });
    placed.insert(at, index);
  }
  return plan;
}

}  // namespace fusionllm::runtime
