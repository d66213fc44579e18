// What the ops of a graph can take in its placeholders, for the data to be checked by.
//
// Pure functions over a typed graph.
#pragma once

#include <cstdint>

#include "lib/opdag/graph.h"

namespace fusionllm::workload {

// 0: no op sets a limit.
struct InputLimits {
  int64_t tokens = 0;          // ids of role "tokens" are below it: rows of the smallest embedding that reads them
  int64_t labels = 0;          // ids of role "labels" are below it: classes of the smallest cross-entropy that reads them
  int64_t image_channels = 0;  // of role "images" as [batch, height, width, channels]
};

// A cross-entropy that ignores an id at or above its classes sets no limit: that id is not out of range.
InputLimits InputLimitsOf(const opdag::Graph& graph);

}  // namespace fusionllm::workload
