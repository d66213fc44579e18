// Several pipelines with the same cuts, side by side: replica d of stage s runs on devices[s][d] (DT-FM's D_PP x D_DP grid, arXiv
// 2206.01288, section 3).
//
// Plain data.
#pragma once

#include <vector>

#include "lib/scheduler/assignment.h"

namespace fusionllm::scheduler::replicas {

struct ReplicaGrid {
  std::vector<int> begins;                // first position of each stage, ascending; begins[0] == 0
  std::vector<std::vector<int>> devices;  // [stage][pipeline], all different; rows of equal length

  int stages() const { return static_cast<int>(devices.size()); }
  int pipelines() const { return devices.empty() ? 0 : static_cast<int>(devices[0].size()); }
  Assignment Pipeline(int pipeline) const {
    Assignment assignment{.begins = begins};
    for (const std::vector<int>& row : devices) assignment.devices.push_back(row[pipeline]);
    return assignment;
  }
  bool operator==(const ReplicaGrid&) const = default;
};

}  // namespace fusionllm::scheduler::replicas
