// OP-DAG: a model as a directed acyclic graph of layer-level operators (arXiv 2410.12707; "operator" = node, data dependency = edge).
//
// Three tables, indexed by dense ids: ops in a topological order, the values they produce, the parameters they own. A value is one
// tensor: produced once, read by any number of ops. Parameters are not values: an op lists those it uses, and the same parameter may be
// used by several ops (tied embeddings). Forward and backward ops (lib/autodiff) live in one Graph type.
//
// Graphs are built by appending ops, so the op order is always topological and a cycle can only come from the text form, whose parser
// refuses it. The batch extent is symbolic (kBatch) until InferTypes fixes it. Plain data; const access from several threads is safe.
// Limits: kMaxOps ops, kMaxRank dimensions, kMaxElements elements of a tensor; checked by the verifier and the shape rules.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/opdag/attributes.h"
#include "lib/opdag/op_kind.h"
#include "lib/tensor/tensor.h"

namespace fusionllm::opdag {

using OpId = int32_t;
using ValueId = int32_t;
using ParameterId = int32_t;
inline constexpr int32_t kNone = -1;

// In shapes of attributes and unbound types: the micro-batch extent, written "b" in the text form.
inline constexpr int64_t kBatch = -2;
inline constexpr int kMaxOps = 1'000'000;
inline constexpr int kMaxRank = 8;
inline constexpr int64_t kMaxElements = int64_t{1} << 40;

// How a parameter starts. Numbers come from base::CounterRng(seed, parameter name), element i of the row-major tensor = index i.
struct Initializer {
  enum class Kind { kZeros, kOnes, kNormal, kUniform };
  Kind kind = Kind::kZeros;
  double scale = 0;  // standard deviation, or half the width of the uniform interval
  bool operator==(const Initializer&) const = default;
};

struct Parameter {
  std::string name;  // the key in checkpoints: Hugging Face's or torchvision's name where one exists
  tensor::TensorType type;
  Initializer initializer;
  bool trainable = true;  // false: state that kernels update (batch-norm running statistics); no gradient, no optimizer
};

struct Op {
  std::string name;  // unique; "block.0.attn.c_attn"
  OpKind kind = OpKind::kNone;
  Attributes attributes;
  std::vector<ValueId> inputs;
  std::vector<ParameterId> parameters;  // in the order of the schema
  std::vector<ValueId> outputs;
  // For an op made by autodiff: the forward op whose stage it shares; kNone for forward ops.
  OpId forward_op = kNone;
};

struct Value {
  std::string name;         // unique; the op's name, or op name + ":" + output name for further outputs
  tensor::TensorType type;  // meaningful once InferTypes has run
  OpId producer = kNone;
  std::vector<OpId> consumers;  // ascending; an op that reads the value twice stands twice
};

class Graph {
 public:
  explicit Graph(std::string name = "") : name_(std::move(name)) {}

  // Appends a parameter; a second call with the same name returns the first one's id if the type agrees (sharing = tying).
  // Errors: InvalidArgument when the types differ, naming both.
  absl::StatusOr<ParameterId> AddParameter(Parameter parameter);

  // Appends an op whose inputs already exist. Output values are made here, one per output of the schema (or the count that a variadic
  // schema derives from the attributes), untyped until InferTypes. Errors: InvalidArgument naming the op: unknown type, wrong number of
  // inputs or parameters, unknown or ill-typed attribute, duplicate name, id out of range.
  absl::StatusOr<OpId> AddOp(Op op);

  const std::string& name() const { return name_; }
  const std::vector<Op>& ops() const { return ops_; }
  const std::vector<Value>& values() const { return values_; }
  const std::vector<Parameter>& parameters() const { return parameters_; }
  const Op& op(OpId id) const { return ops_[id]; }
  const Value& value(ValueId id) const { return values_[id]; }
  const Parameter& parameter(ParameterId id) const { return parameters_[id]; }
  Op& mutable_op(OpId id) { return ops_[id]; }
  Value& mutable_value(ValueId id) { return values_[id]; }

  OpId FindOp(absl::string_view name) const;                // kNone when absent
  ParameterId FindParameter(absl::string_view name) const;  // kNone when absent

  // The scalar that training minimises (output of a loss op); kNone until set.
  ValueId loss() const { return loss_; }
  void set_loss(ValueId value) { loss_ = value; }

  // The micro-batch extent that InferTypes used; 0 before.
  int64_t batch() const { return batch_; }
  void set_batch(int64_t batch) { batch_ = batch; }

 private:
  std::string name_;
  std::vector<Op> ops_;
  std::vector<Value> values_;
  std::vector<Parameter> parameters_;
  std::map<std::string, OpId> op_by_name_;
  std::map<std::string, ParameterId> parameter_by_name_;
  ValueId loss_ = kNone;
  int64_t batch_ = 0;
};

// Sets every value's type for micro-batches of `batch` samples by the shape rules of the schemas, in op order.
// Errors: InvalidArgument naming the op and the shapes that do not fit ("op 'fc1' (linear): input f32[4, 10] does not match weight ...").
absl::Status InferTypes(Graph& graph, int64_t batch);

// The same for one op whose inputs are typed, with the batch of graph.batch(): for builders and passes that type ops as they append them.
absl::Status InferOp(Graph& graph, OpId op);

// Checks everything a well-formed graph promises: id ranges, topological order, unique names, producer/consumer agreement, schema arity,
// a loss that is an f32 scalar (if set), limits. Errors: InvalidArgument naming the op or value.
absl::Status Verify(const Graph& graph);

}  // namespace fusionllm::opdag
