// Static memory planning: gives each tensor of a straight-line program an offset in one arena, so that tensors that are alive at the same
// time never overlap.
//
// Pure function. Greedy by size, best fit among the gaps left by overlapping lifetimes (Pisarchyk & Lee, arXiv 2001.03288, "greedy by
// size"); not optimal, but within a few per cent of the largest set alive at once for layer chains.
#pragma once

#include <cstddef>
#include <vector>

namespace fusionllm::runtime {

struct Lifetime {
  size_t bytes = 0;
  int first = 0;  // program position that writes it
  int last = 0;   // program position that reads it last; >= first
};

struct MemoryPlan {
  std::vector<size_t> offsets;  // parallel to the lifetimes; multiples of tensor::kAlignment
  size_t arena_bytes = 0;
};

MemoryPlan PlanMemory(const std::vector<Lifetime>& lifetimes);

}  // namespace fusionllm::runtime
