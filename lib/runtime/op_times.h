// How long the ops of a stage take, measured as training runs them. Plain data.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "lib/opdag/graph.h"

namespace fusionllm::runtime {

// Of the times of an op on a machine that others use, too: what it takes while they leave it alone.
inline constexpr double kUncontendedQuantile = 0;

struct MeasureOptions {
  // Micro-batches that are timed: at least so many, and on until `seconds` have gone by or there are `max_micro_batches` of them.
  int min_micro_batches = 3;
  int max_micro_batches = 100;
  double seconds = 0;
  // When this long has gone by, one that is timed is enough: large ones vary little.
  double timeout_s = std::numeric_limits<double>::infinity();
  // Of the times of an op, the one that counts: this share of them is less. The median tells what the op takes in general; a low quantile
  // what it takes while nothing else disturbs the machine, whose speed may change by a fifth from one second to the next.
  double quantile = 0.5;
  // Time on the clock of the calling thread, which other work of the machine does not lengthen; for back ends of one thread.
  bool thread_cpu = false;
  std::function<bool()> cancelled;  // asked between micro-batches; empty: never
};

struct OpTime {
  opdag::OpId op = opdag::kNone;
  double seconds = 0;  // one run in one micro-batch: MeasureOptions::quantile
  int64_t workspace_bytes = 0;
};

}  // namespace fusionllm::runtime
