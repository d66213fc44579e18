// What a training graph costs: for each forward op with its backward part FLOPs, bytes moved and memory; for each value that a cut may
// expose its size and what crosses. Hardware enters only through SecondsByOp, which prices the same costs on one machine.
//
// Pure functions over a typed graph (autodiff::Differentiate's result): costs are those of one micro-batch of that size. The memory rules
// are the runtime's (lib/runtime/stage_program.h): weights once, a gradient buffer for each use, optimizer state, a stash slot for each
// micro-batch in flight with the forward values that backward ops read, and one scratch arena, in which views (autodiff::ViewsOf) take
// nothing. A value that is kept and a view of it that is kept too count as two here, and are one there.
#pragma once

#include <bitset>
#include <cstdint>
#include <string>
#include <vector>

#include "lib/autodiff/training_graph.h"
#include "lib/estimator/cost_model.h"
#include "lib/opdag/activation_kind.h"
#include "lib/opdag/graph.h"

namespace fusionllm::estimator {

struct OpCosts {
  opdag::OpId op = opdag::kNone;  // forward op; also its index in GraphCosts::ops
  bool placeholder = false;
  std::vector<opdag::OpId> backward_ops;  // that run in its stage, ascending; adds of gradient folds included
  double forward_flops = 0;
  double backward_flops = 0;
  int64_t parameter_bytes = 0;
  int64_t trainable_bytes = 0;  // of parameter_bytes
  int64_t gradient_bytes = 0;   // one buffer for each use
  int64_t optimizer_bytes = 0;
  // Most bytes of unsaved values alive while this op or its backward part runs.
  int64_t workspace_bytes = 0;
};

struct ValueCosts {
  opdag::ValueId value = opdag::kNone;
  opdag::OpId producer = opdag::kNone;
  std::vector<opdag::OpId> consumers;  // forward ops, ascending, unique
  std::vector<opdag::OpId> kept_by;    // forward ops whose backward part reads it, ascending, unique
  int64_t bytes = 0;
  tensor::DType dtype = tensor::DType::kF32;
  bool differentiable = false;  // a gradient returns over the same edge
  bool lossless_only = false;   // not floating: ids, labels, masks
  opdag::ActivationKind kind = opdag::ActivationKind::kHidden;
};

// A trainable parameter with several uses.
struct SharedParameterCosts {
  opdag::ParameterId parameter = opdag::kNone;
  std::vector<opdag::OpId> ops;
  int64_t bytes = 0;
  int64_t optimizer_bytes = 0;
};

struct GraphCosts {
  std::vector<OpCosts> ops;        // by forward op id
  std::vector<ValueCosts> values;  // those that some other op, or a backward part, reads
  std::vector<SharedParameterCosts> shared;
};

// `state_tensors`: optimizer state per trainable parameter: 2 AdamW, 1 SGD with momentum, 0 without.
GraphCosts CostsOf(const autodiff::TrainingGraph& training, int state_tensors);

// Type, attributes and all shapes: ops with equal signatures take equal time. "linear{bias=true, ...}(f32[4, 256, 384]; f32[384, 1536])".
// What is lower than fp32 of the outputs' dtypes, which do not follow from the rest, stands behind: "... -> bf16".
std::string OpSignature(const opdag::Graph& graph, const opdag::Op& op);

struct OpSeconds {
  double forward_s = 0;
  double backward_s = 0;
  double update_s = 0;   // optimizer, once a step
  double weights_s = 0;  // part of backward_s: ops that give nothing but gradients of parameters, for which no other stage waits
  // Of forward_s + backward_s: what comes from the regression instead of a measurement, and how much of that may be wrong (relative error
  // times seconds, added up: errors of a class have one sign).
  double fitted_s = 0;
  double uncertain_s = 0;
  double inferred_s = 0;  // of fitted_s: from other sizes of the very op
  std::bitset<opdag::kOpClassCount> fitted_classes;
};
// By forward op id, on the uncontended machine. A shared parameter is updated at its first user.
std::vector<OpSeconds> SecondsByOp(const GraphCosts& costs, const autodiff::TrainingGraph& training, const CostModel& model);

}  // namespace fusionllm::estimator
