// How a forward graph is divided for activation checkpointing: into blocks that end where few bytes are alive, such as those of a
// transformer or of a residual network. The backward pass keeps what goes from one block to another and runs one block's ops again at a
// time (Chen et al., "Training Deep Nets with Sublinear Memory Cost", arXiv 1604.06174, section 4).
//
// Pure function of the graph: planner and executors come to the same blocks, wherever the stages are cut. See docs/design/adr/0032.
#pragma once

#include <cstdint>
#include <vector>

#include "lib/autodiff/training_graph.h"

namespace fusionllm::autodiff {

struct RecomputeBlocks {
  // By forward op id: its block, from 0, ascending. Each is a run of consecutive ops.
  std::vector<int> of_op;
  // By value id of the whole graph: a forward value that an op of another block reads, forward or backward, itself or by a view. Of values
  // that views show it is the value shown that says so.
  std::vector<bool> crosses;
  // By forward op id: whether it runs again, where one stage has the whole graph. A stage that has a part of it runs none again that is not
  // among them: what no op reads on the way back is not made, and what crosses is kept.
  std::vector<bool> runs_again;
  int count() const { return of_op.empty() ? 0 : of_op.back() + 1; }
};

// The blocks for which what crosses any of them (added up over them, for as many micro-batches are in flight at the first of equal stages
// as there are stages) and what the largest keeps inside take the fewest bytes together. `views`: by op id, what shares the bytes that it
// reads (ViewsOf). The graph must be typed. Time: ops x 25 or so, and edges.
RecomputeBlocks RecomputeBlocksOf(const TrainingGraph& training, const std::vector<bool>& views);

}  // namespace fusionllm::autodiff
