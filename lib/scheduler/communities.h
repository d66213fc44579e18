// Which devices are near each other, and in what orders a pipeline should visit them: OP-Fence's first two steps.
#pragma once

#include <vector>

#include "lib/scheduler/problem.h"

namespace fusionllm::scheduler {

// Groups of usable devices joined by links of similar speed, at several resolutions, coarse to fine: single linkage over the time that a
// typical cut takes to cross (the slower direction), cut at the largest jumps between successive merges. Every resolution lists all usable
// devices. Modularity (Louvain) merges true clusters at scale; the linkage keeps them, and the partitioner judges each resolution.
std::vector<std::vector<std::vector<int>>> Communities(const Problem& problem);

// Orders of all usable devices in which slow hops are few: communities follow each other along near ones, devices inside by speed (both
// ways) or by nearness; the declared order too. No repetition; at most `limit`.
std::vector<std::vector<int>> CandidateOrders(const Problem& problem, size_t limit);

}  // namespace fusionllm::scheduler
