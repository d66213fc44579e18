// Cuts for stages on known devices over all order ideals of the graph, by dynamic programming: exact for the closed form, where ChainSearch
// is exact for the cuts of one topological order.
//
// Objective: sum of stage times and crossings + (micro_batches - 1) x the slowest of them (bytes at a cut are those alive there). For a cap
// on the slowest the least sum is a shortest path over (stage, ideal); the cap is swept from a lower bound in steps of kCapStep as long as
// it can pay, so that the result is within that factor of the best. Memory is not looked at: who judges the results does.
//
// Pure. Cost: caps x stages x pairs of ideals. Memory: stages x ideals x 12 bytes.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "lib/scheduler/ideals.h"
#include "lib/scheduler/problem.h"

namespace fusionllm::scheduler {

struct IdealCut {
  std::vector<int> order;   // ops: stage by stage, inside one as in the problem's order
  std::vector<int> begins;  // in it, of each stage
  double estimate_s = 0;
};

// Different ones, best estimate first, at most `limit`; none where no link joins two neighbours. One stage on each of `devices`, in that
// order. `ideals`: IdealsOf(problem).
std::vector<IdealCut> CutOverIdeals(const Problem& problem, const std::vector<Ideal>& ideals, std::span<const int> devices, size_t limit);

}  // namespace fusionllm::scheduler
