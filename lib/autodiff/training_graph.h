// Reverse-mode differentiation as a graph pass: forward graph -> one graph with forward and backward ops (RAD, arXiv 2410.12707:
// the pass never looks at placement, so any stage can run its part knowing nothing but its own ops and the messages at its border).
//
// Pure function. The first ops of the result are the forward graph's ops with the same ids, then one placeholder (role "loss_gradient",
// the seed 1 / micro_batches), then backward ops in a topological order that visits forward ops in reverse. Where the loss is itself a
// cross_entropy the seed is first multiplied by the share of its labels that count, so that each of them weighs the same whatever
// micro-batch it is in, but for one factor, the mean of the shares, by which the runtime divides the gradients of the whole batch. Losses
// that other ops make of cross_entropy ops are to be weighed before (opdag::AddTargetWeights).
//
// So that any number of stages gives the same bits (docs/design/same-bits.md), a value read by
// several ops gets its gradient as a left fold of explicit `add` ops in descending order of consumer id (an op that reads the value twice:
// in descending order of input), whatever the placement; each use of a parameter has its own gradient value, never summed here.
//
// Every gradient value belongs to one forward value: where a rule passes dy on as it is (add, a cut of a residual), an identity `reshape`
// stands between, run in the stage of the op that passes it on, so a gradient always returns over the edges its value came by.
//
// Backward attributes hold concrete extents: a training graph is bound to the micro-batch of its forward graph.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "lib/opdag/graph.h"

namespace fusionllm::autodiff {

// One use of a trainable parameter by a forward op. Kernels that write `gradient` accumulate into it (KernelArguments::accumulate), in
// micro-batch order; the runtime keeps one buffer for each use and sums the uses in the order of this list.
struct ParameterUse {
  opdag::ParameterId parameter = opdag::kNone;
  opdag::OpId op = opdag::kNone;  // forward op
  int slot = 0;                   // index in op.parameters
  opdag::ValueId gradient = opdag::kNone;
};

struct TrainingGraph {
  opdag::Graph graph;
  int forward_ops = 0;                          // ops with a smaller id are forward
  opdag::ValueId loss_gradient = opdag::kNone;  // the seed placeholder's value
  opdag::ValueId counted = opdag::kNone;  // share of a micro-batch's targets that the loss is to be weighed by; kNone: all weigh alike
  std::vector<opdag::OpId> target_ops;    // cross_entropy ops that the loss depends on (opdag::TargetOps)
  std::vector<opdag::ValueId>
      gradient_of;  // by value id of the whole graph: the completed gradient of a forward value; kNone where none flows
  std::vector<opdag::ValueId>
      differentiates;              // by value id: the forward value of which this value is a (partial) gradient; kNone otherwise
  std::vector<ParameterUse> uses;  // ordered by (parameter name, op id, slot)
};

// `forward` must be typed and have a loss. `add` ops of a fold carry forward_op = the consumer whose term they add; their stage is
// AssignStages()'s own rule. The result is typed.
// Errors: InvalidArgument when the loss is not set, an op has no gradient rule though a gradient reaches it, or a trainable parameter is
// not reached by any gradient (named).
absl::StatusOr<TrainingGraph> Differentiate(const opdag::Graph& forward);

// What the stage that owns the loss reads of the targets beside it: the share that counts of each of target_ops, and how many were right
// where it is one. They are sent there where another stage makes them.
std::vector<opdag::ValueId> TargetStatistics(const TrainingGraph& training);

// By op id: whether all that the op does is to give its input another shape or another name, so that its output may be the bytes of its
// input: nothing runs then, and it takes no time. Not where it rounds or widens, and not where either is the gradient of a parameter's use,
// which is added up in a buffer of its own. Holds in every stage: an op is a view of what it reads there, made there or come from
// elsewhere.
std::vector<bool> ViewsOf(const TrainingGraph& training);

// Stage of each op of the training graph, given the stage of each forward op. A backward op runs where its forward op runs. An `add` of a
// gradient fold runs where both its operands are if they share a stage, else in the stage of the forward value's producer, so that each
// stage sends one partial gradient for a value it received and the fold's shape (its bits) never depends on the cut.
std::vector<int> AssignStages(const TrainingGraph& training, const std::vector<int>& forward_stage_of_op);

}  // namespace fusionllm::autodiff
