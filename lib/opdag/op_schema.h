// What an operator type is: arity, attributes, shape rule, cost rule. One file per family of ops registers them (lib/opdag/ops/*.cc).
//
// Gradient rules live in lib/autodiff, kernels in lib/kernels: an op is complete when all three know it, which a test checks.
//
// The ops. Notation: x[..] input values; @w parameters (parameter? = optional); {a=..} attributes; -> outputs. All tensors f32 unless
// said. Images are NHWC (channels innermost); convolution weights are torchvision's OIHW.
//
//   placeholder() {role="tokens"|"images"|"labels"|"loss_gradient"|.., dtype="i32", shape=[b, 256]} -> y      filled by the runtime
//       role "target_weight" with of="cross_entropy op": what target_weights.h adds
//   constant() {value, shape} -> y
//   embedding(tokens i32[b,T]; @wte[V,D], @wpe[P,D]?) {vocab=V, dim=D, positions=P (0: no @wpe)} -> y[b,T,D]   y = wte[token] + wpe[t]
//   layer_norm(x[..,D]; @weight[D], @bias[D]) {epsilon=1e-5} -> y, mean[rows], rstd[rows]
//   linear(x[..,I]; @weight, @bias[O]?) {out=O, layout="io"|"oi", bias=true} -> y[..,O]
//       weight "io": [I,O], GPT-2's Conv1D; "oi": [O,I], torch.nn.Linear and tied heads
//   attention(qkv[b,T,3D]) {heads, causal=true} -> y[b,T,D], lse[b,heads,T]    softmax(q k' / sqrt(D/heads)) v; lse: of the scaled scores
//   gelu(x) {approximate="tanh"|"none"} · relu · tanh · sigmoid · exp · log · sqrt · neg · square (x) -> y
//   scale(x) {factor=1, shift=0} -> y = factor*x + shift
//   add, sub, mul, div (a, b) -> y          NumPy broadcasting · softmax(x) -> y, log_softmax(x) -> y          over the last axis
//   matmul(a[..,M,K], b[..,K,N]) {transpose_a, transpose_b} -> y[..,M,N]     equal leading extents, or b of rank 2
//   reshape(x) {shape=[b, -1]} · flatten(x) {start=1} · transpose(x) {permutation} -> y
//   concat(x0, x1, ..) {axis} -> y · split(x) {axis, sizes} -> y0, y1, .. · slice(x) {axis, begin, end} -> y
//   reduce(x) {kind="sum"|"mean"|"max", axes, keep_dims=false} -> y · broadcast_to(x) {shape} -> y
//   dropout(x) {rate, name} -> y                           counter-based mask by (seed, op name, step, sample); identity in evaluation
//   cross_entropy(logits[..,C], labels i32[..]) {ignore_index=-100} -> loss[], correct[], lse[rows], counted[]
//       loss: mean over labels != ignore_index, 0 of none; correct: how many argmax hits; counted: share of the labels != ignore_index
//   mse(x, target) -> loss[]                               mean of squares
//   conv2d(x[b,H,W,I]; @weight[O,I/groups,kh,kw], @bias[O]?) {out=O, kernel=[kh,kw], stride, padding, dilation, groups=1, bias=false} -> y
//   batch_norm(x[..,C]; @weight[C], @bias[C], @running_mean[C], @running_var[C], @num_batches_tracked i64[]) {epsilon, momentum=0.1}
//       -> y, mean[C], rstd[C]; training updates the last three (unbiased variance, as torch), evaluation reads them: not trainable
//   max_pool2d(x) {kernel, stride, padding} -> y, index i32[like y] (flat h*W+w in the input plane)
//   avg_pool2d(x) {kernel, stride, padding} -> y (padding counted, as torch) · global_avg_pool(x[b,H,W,C]) -> y[b,C]
//
//   Axes are counted from 0 and never negative; `axes` ascend without repeats. kernel, stride, padding, dilation are [height, width];
//   padding defaults to [0, 0], conv2d's stride and dilation to [1, 1], epsilon to 1e-5. Pooling pads at most half the kernel. Extents are
//   at least 1. A value is f32 unless it is a placeholder that says otherwise. reshape, broadcast_to, constant and placeholder take "b" in
//   shape; reshape takes one -1. dropout's name defaults to the op's. in_shape and the shapes that autodiff writes are concrete.
//
//   Made by autodiff only (dy = gradient of the forward op's first output):
//   embedding_grad(tokens, dy) {vocab, dim, positions} -> dwte[V,D], dwpe[P,D] (when positions > 0)
//   layer_norm_grad(x, dy, mean, rstd; @weight) -> dx, dweight, dbias
//   linear_grad_input(dy; @weight) {layout, in} -> dx · linear_grad_weight(x, dy) {layout, bias} -> dweight, dbias (when bias)
//   attention_grad(qkv, y, lse, dy) {heads, causal} -> dqkv
//   gelu_grad(x, dy) {approximate} -> dx · relu_grad(y, dy) · tanh_grad(y, dy) · sigmoid_grad(y, dy) -> dx
//   softmax_grad(y, dy) -> dx · log_softmax_grad(y, dy) -> dx · reduce_max_grad(x, y, dy) {axes, keep_dims} -> dx (ties share equally)
//   sum_to(dy) {shape} -> dx (sums what broadcasting repeated) · pad_slice(dy) {axis, begin, extent} -> dx (zeros around)
//   dropout_grad(dy) {rate, name} -> dx
//   cross_entropy_grad(logits, labels, lse, dloss) {ignore_index} -> dlogits · mse_grad(x, target, dloss) -> dx
//   conv2d_grad_input(dy; @weight) {.., in_shape} -> dx · conv2d_grad_weight(x, dy) {..} -> dweight, dbias (when bias)
//   batch_norm_grad(x, dy, mean, rstd; @weight) -> dx, dweight, dbias
//   max_pool2d_grad(dy, index) {.., in_shape} -> dx · avg_pool2d_grad(dy) {.., in_shape} -> dx
//   global_avg_pool_grad(dy) {height, width} -> dx
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/opdag/graph.h"

namespace fusionllm::opdag {

// What an op is to training.
enum class OpRole { kPlaceholder, kParametric, kNonParametric, kLoss };

// Classes of ops that share one pair of effective rates in the estimator: what bounds their speed is alike.
enum class OpClass { kFree, kMatmul, kAttention, kConvolution, kNormalization, kElementwise, kGather, kReduction, kDataMovement };
absl::string_view Name(OpClass op_class);
inline constexpr int kOpClassCount = 9;

// Cost of running an op once on one micro-batch.
struct OpCost {
  double flops = 0;        // multiply-add counts two
  int64_t bytes_read = 0;  // inputs and parameters, each once
  int64_t bytes_written = 0;
};

enum class AttributeKind { kInt, kNumber, kBool, kText, kInts };

struct AttributeSchema {
  std::string name;
  AttributeKind kind;
  bool required = false;
  bool defaults_to_op_name = false;  // AddOp writes the op's name when absent
};

struct OpSchema {
  OpKind kind = OpKind::kNone;
  OpRole role = OpRole::kNonParametric;
  OpClass op_class = OpClass::kElementwise;
  std::vector<std::string> inputs;  // names; with variadic_inputs the last one repeats (1..kMaxVariadic)
  bool variadic_inputs = false;
  std::vector<std::string> parameters;  // names; those from optional_parameters on may be absent as the attributes say
  int optional_parameters = 0;          // how many of the last ones are optional
  std::vector<std::string> outputs;     // names of all possible outputs
  std::vector<AttributeSchema> attributes;
  bool backward_only = false;  // made by autodiff, refused in user graphs

  // How many parameters and outputs an op with these attributes and this many inputs has.
  std::function<int(const Attributes&)> parameter_count;
  std::function<int(const Attributes&)> output_count;
  // Types of the outputs. Errors: InvalidArgument with the reason; the caller prefixes the op's name.
  std::function<absl::StatusOr<std::vector<tensor::TensorType>>(const Graph&, const Op&)> infer;
  // Types of the parameters that an op with these attributes and input types owns; lets text and builders leave shapes out.
  std::function<absl::StatusOr<std::vector<tensor::TensorType>>(const Attributes&, const std::vector<tensor::TensorType>& inputs)>
      parameter_types;
  // FLOPs; bytes are inputs + parameters + outputs unless the rule says otherwise.
  std::function<double(const Graph&, const Op&)> flops;
  std::function<int64_t(const Graph&, const Op&)> bytes_read;  // empty: inputs + parameters, each once

  std::string name() const { return std::string(Name(kind)); }  // of the op type, as in the text form
};

inline constexpr int kMaxVariadic = 64;

// nullptr for kNone, and for a name that no op type has.
const OpSchema* FindSchema(OpKind kind);
const OpSchema* FindSchema(absl::string_view name);
// All schemas, sorted by name.
const std::vector<const OpSchema*>& AllSchemas();

// Whether an op of this type may have these attributes and this many inputs: names and kinds of attributes, arity, and counts of outputs
// within kMaxVariadic. Errors: InvalidArgument with the reason; the caller prefixes the op's name.
absl::Status CheckSignature(const OpSchema& schema, const Attributes& attributes, size_t input_count);

// Name of an output: the schema's, or "y<index>" where a variadic count passes the list. "op:<name>" refers to it, the first one aside.
std::string OutputName(const OpSchema& schema, int index);

// Needs inferred types.
OpCost CostOf(const Graph& graph, const Op& op);

}  // namespace fusionllm::opdag
