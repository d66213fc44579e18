// One stage's part of a training graph as a straight-line program with a static memory plan.
//
// Built once for each plan epoch; pure data. A micro-batch runs `forward` in order and later `backward` in order. Values that the backward
// pass reads live in the micro-batch's slot of the stash arena, everything else in one scratch arena that the passes share, because one
// thread runs one pass at a time. With recomputation a slot keeps, of what the way back needs, only what came from outside and what goes
// from one block to another (autodiff::RecomputeBlocksOf), and `backward` has the forward ops of a block again before the first op that
// reads what they make; those whose outputs are kept, or that are not read on the way back, it has not.
//
// Views (autodiff::ViewsOf) share one place with what they show, from when that is made or received to when the last of them is read; if
// one of them is kept for the backward pass, all of them lie in the slot. Nothing writes there meanwhile: each value has one op that makes
// it, and what an op makes never takes the place of what it reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/autodiff/training_graph.h"
#include "lib/opdag/graph.h"

namespace fusionllm::runtime {

// A value that crosses the border of the stage.
struct CutEdge {
  opdag::ValueId value = opdag::kNone;
  int peer = 0;                      // the other stage
  bool gradient = false;             // of forward value `of`, which travelled the other way on the same edge
  opdag::ValueId of = opdag::kNone;  // the forward value; == value for forward edges
};

enum class Arena : uint8_t { kNone, kScratch, kStash, kPerUseGradient };

// Where a value lies during a pass. kPerUseGradient: in the gradient buffer of TrainingGraph::uses[index].
struct Location {
  Arena arena = Arena::kNone;
  size_t offset = 0;
  int use = opdag::kNone;
};

struct ProgramOp {
  opdag::OpId op = opdag::kNone;
  bool view = false;           // its output is where its input is: nothing runs
  bool recompute = false;      // run again in the backward pass: updates no state, sends nothing
  std::vector<CutEdge> sends;  // leave as soon as the op has run
};

struct Pass {
  std::vector<CutEdge> receives;  // all of them must have arrived before the pass starts
  std::vector<ProgramOp> ops;
  std::vector<Location> location;  // by value id
};

// What a stage needs, in bytes; the estimator predicts the same sums (docs/results/memory.md has the goal, within 15 %, and how near it
// is).
struct StageMemory {
  size_t parameters = 0;
  size_t gradients = 0;  // one buffer for each use
  size_t optimizer = 0;
  size_t stash_per_slot = 0;
  size_t slots = 0;
  size_t scratch = 0;
  size_t total() const { return parameters + gradients + optimizer + stash_per_slot * slots + scratch; }
};

struct StageProgram {
  int stage = 0;
  int stages = 1;
  Pass forward;
  Pass backward;
  Pass evaluate;                               // the forward ops with a memory plan of their own: nothing is kept
  std::vector<opdag::ParameterId> parameters;  // used by the stage's ops, ascending
  std::vector<int> local_uses;                 // indices in TrainingGraph::uses, ascending
  // For each parameter used in several stages: all stages that use it, ascending. By parameter id; empty for the others.
  std::vector<std::vector<int>> sharers;
  size_t scratch_bytes = 0;  // the largest of the passes
  size_t stash_bytes_per_slot = 0;
  bool owns_loss = false;
};

enum class Recompute : uint8_t {
  kNone,
  kFull,  // block by block
};
enum class Reshapes : uint8_t {
  kViews,
  kCopies,  // each is run and has a place of its own; the same bits, for tests
};

// `stage_of_op`: by op id of the training graph (autodiff::AssignStages). Errors: InvalidArgument when a stage index is out of range, when
// the quotient graph over stages has a cycle (naming an edge that closes it) or when `stage` has no op.
absl::StatusOr<StageProgram> BuildStageProgram(const autodiff::TrainingGraph& training, const std::vector<int>& stage_of_op, int stage,
                                               int stages, Recompute recompute, Reshapes reshapes = Reshapes::kViews);

// `state_tensors`: optimizer state per trainable parameter (2 for AdamW).
StageMemory MemoryOf(const StageProgram& program, const autodiff::TrainingGraph& training, int slots, int state_tensors);

}  // namespace fusionllm::runtime
