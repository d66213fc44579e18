// The networks that DT-FM was studied on, and irregular ones made of the same links. Facts and figures from the public artefact of
// arXiv 2206.01288 (DS3Lab/DT-FM, scheduler/heuristic_evolutionary_solver/config.py).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lib/scheduler/grid/grid_problem.h"

namespace fusionllm::scheduler::grid {

struct Scenario {
  Network network;
  double best_known_s = 0;  // with StudyShape(), to three decimals
};

// GPT3-XL on 8 x 8 devices: c_DP of three fp32 layers, c_PP of a macro-batch.
Shape StudyShape();

// Cases 0 to 4: data centre, spot instances, two data centres, four regions of one country, eight of the world; 64 devices each.
std::vector<Scenario> StudyScenarios();

// 64 devices, each in a city drawn with unequal weights, in no order.
Network IrregularNetwork(uint64_t seed);

}  // namespace fusionllm::scheduler::grid
