// Device lists one change away from a list: what local search over the order of a pipeline and over who takes part goes through.
//
// Pure and thread-safe. Quadratic in the list, times its length; linear in the choice, times twice the length.
#pragma once

#include <vector>

namespace fusionllm::scheduler {

// In a fixed order: two swapped, one moved, one replaced by one of `choice` that is not listed, one less if the list `may_shrink`, one more
// if it `may_grow`. A list of one does not become empty.
std::vector<std::vector<int>> NeighbourOrders(const std::vector<int>& devices, const std::vector<int>& choice, bool may_shrink,
                                              bool may_grow);

}  // namespace fusionllm::scheduler
