#include "lib/opdag/activation_kind.h"

#include <algorithm>
#include <array>
#include <unordered_set>

#include "absl/strings/str_cat.h"
#include "lib/opdag/op_schema.h"

namespace fusionllm::opdag {
namespace {

constexpr std::array<absl::string_view, kActivationKindCount> kNames = {
    "data", "loss_input", "inner_residual", "residual", "attention_input", "normalized", "hidden"};

using Marks = std::vector<char>;  // by value id

class Kinds {
 public:
  Kinds(const Graph& graph, OpId forward_ops)
      : graph_(graph), end_(forward_ops), learned_(graph.values().size()), kinds_(graph.values().size(), ActivationKind::kData) {
    for (OpId id = 0; id < end_; ++id) {
      const Op& op = graph_.op(id);
      const bool learned = HasTrainable(op) || std::any_of(op.inputs.begin(), op.inputs.end(), [&](ValueId v) { return learned_[v]; });
      for (const ValueId v : op.outputs) learned_[v] = learned;
    }
  }

  std::vector<ActivationKind> Find() {
    const Marks loss = LossInputs(), residual = ResidualStream(), attention = AttentionInputs(), normalized = NormalizedValues();
    const Marks inner = InnerSums(loss);
    for (OpId id = 0; id < end_; ++id) {
      for (const ValueId v : graph_.op(id).outputs) {
        if (!learned_[v]) continue;
        kinds_[v] = loss[v]         ? ActivationKind::kLossInput
                    : inner[v]      ? ActivationKind::kInnerResidual
                    : residual[v]   ? ActivationKind::kResidual
                    : attention[v]  ? ActivationKind::kAttentionInput
                    : normalized[v] ? ActivationKind::kNormalized
                                    : ActivationKind::kHidden;
      }
    }
    return std::move(kinds_);
  }

 private:
  const OpSchema& SchemaOf(const Op& op) const { return *FindSchema(op.kind); }
  OpClass ClassOf(const Op& op) const { return SchemaOf(op).op_class; }
  int64_t Elements(ValueId v) const { return graph_.value(v).type.elements(); }
  bool HasTrainable(const Op& op) const {
    return std::any_of(op.parameters.begin(), op.parameters.end(), [&](ParameterId p) { return graph_.parameter(p).trainable; });
  }
  bool Moves(const Op& op) const { return ClassOf(op) == OpClass::kDataMovement; }
  int LearnedInputs(const Op& op) const {
    return static_cast<int>(std::count_if(op.inputs.begin(), op.inputs.end(), [&](ValueId v) { return learned_[v]; }));
  }

  // Whether an output is another form of this learned input alone: of two learned ones the one that the other, smaller one is spread over,
  // as a bias is over what it shifts. Sums of scalars are losses added up: another form of each.
  bool Carries(const Op& op, ValueId input) const {
    if (op.outputs.empty() || !learned_[input]) return false;
    if (Moves(op) || LearnedInputs(op) == 1) return true;
    const int64_t elements = Elements(op.outputs[0]);
    if (elements == 1) return true;
    return Elements(input) == elements &&
           std::all_of(op.inputs.begin(), op.inputs.end(), [&](ValueId v) { return v == input || Elements(v) < elements; });
  }

  // Marks, from the outputs of later ops that are marked, the inputs that they are another form of.
  template <typename Through>
  void CarryBack(Through through, Marks& marks) const {
    for (OpId id = end_ - 1; id >= 0; --id) {
      const Op& op = graph_.op(id);
      if (std::none_of(op.outputs.begin(), op.outputs.end(), [&](ValueId v) { return marks[v]; }) || !through(op)) continue;
      for (const ValueId v : op.inputs) {
        if (Carries(op, v)) marks[v] = 1;
      }
    }
  }

  Marks LossInputs() const {
    Marks marks(graph_.values().size());
    if (graph_.loss() != kNone) marks[graph_.loss()] = 1;
    for (OpId id = 0; id < end_; ++id) {
      const Op& op = graph_.op(id);
      if (SchemaOf(op).role != OpRole::kLoss) continue;
      for (const ValueId v : op.inputs) marks[v] = learned_[v];
    }
    // Up to the last op that learns or mixes features.
    CarryBack(
        [&](const Op& op) {
          const OpClass op_class = ClassOf(op);
          return !HasTrainable(op) && op_class != OpClass::kMatmul && op_class != OpClass::kAttention && op_class != OpClass::kConvolution;
        },
        marks);
    return marks;
  }

  Marks AttentionInputs() const {
    Marks marks(graph_.values().size());
    for (OpId id = 0; id < end_; ++id) {
      const Op& op = graph_.op(id);
      const bool product = ClassOf(op) == OpClass::kMatmul && LearnedInputs(op) > 1;
      if (ClassOf(op) != OpClass::kAttention && !product) continue;
      for (const ValueId v : op.inputs) marks[v] = learned_[v];
    }
    // Masks and scales of scores, their softmax, and heads taken apart.
    CarryBack(
        [&](const Op& op) {
          const bool softmax = ClassOf(op) == OpClass::kNormalization && op.parameters.empty();
          return Moves(op) || softmax || op.kind == OpKind::kScale || op.kind == OpKind::kAdd || op.kind == OpKind::kMul;
        },
        marks);
    return marks;
  }

  // An add of two learned branches of one size.
  bool Merges(const Op& op) const {
    if (op.kind != OpKind::kAdd || LearnedInputs(op) != 2) return false;
    return Elements(op.inputs[0]) == Elements(op.outputs[0]) && Elements(op.inputs[1]) == Elements(op.outputs[0]);
  }

  // The value behind ops that only move it.
  ValueId Unmoved(ValueId v) const {
    for (OpId id = graph_.value(v).producer; Moves(graph_.op(id)) && graph_.op(id).inputs.size() == 1; id = graph_.value(v).producer) {
      v = graph_.op(id).inputs[0];
    }
    return v;
  }

  bool DependsOn(ValueId v, ValueId ancestor) const {
    const OpId begin = graph_.value(ancestor).producer;
    std::unordered_set<ValueId> seen;
    std::vector<ValueId> open = {v};
    while (!open.empty()) {
      const ValueId next = open.back();
      open.pop_back();
      if (next == ancestor) return true;
      if (graph_.value(next).producer <= begin || !seen.insert(next).second) continue;
      const std::vector<ValueId>& inputs = graph_.op(graph_.value(next).producer).inputs;
      open.insert(open.end(), inputs.begin(), inputs.end());
    }
    return false;
  }

  // x of x + f(x), where the op is such a sum; else kNone. Sums of branches, of projections with a bias or of embeddings carry nothing.
  ValueId SkipConnectionOf(const Op& op) const {
    if (!Merges(op)) return kNone;
    for (const int i : {0, 1}) {
      const ValueId carried = Unmoved(op.inputs[i]);
      if (DependsOn(op.inputs[1 - i], carried)) return carried;
    }
    return kNone;
  }

  bool LayerNormReads(ValueId v) const {
    const std::vector<OpId>& consumers = graph_.value(v).consumers;
    return std::any_of(consumers.begin(), consumers.end(), [&](OpId id) {
      const Op& op = graph_.op(id);
      if (id >= end_) return false;
      return op.kind == OpKind::kLayerNorm || (Moves(op) && op.inputs.size() == 1 && LayerNormReads(op.outputs[0]));
    });
  }

  // Sums that a skip connection ends in and the next one begins with.
  Marks InnerSums(const Marks& loss) const {
    Marks marks(graph_.values().size());
    for (OpId id = 0; id < end_; ++id) {
      const Op& op = graph_.op(id);
      if (const ValueId carried = SkipConnectionOf(op); carried != kNone && !loss[op.outputs[0]]) {
        marks[carried] = SkipConnectionOf(graph_.op(graph_.value(carried).producer)) != kNone && LayerNormReads(carried);
      }
    }
    CarryForward([&](const Op& op) { return op.inputs.size() == 1 && Moves(op); }, marks);
    return marks;
  }

  int ForwardConsumers(ValueId v) const {
    const std::vector<OpId>& consumers = graph_.value(v).consumers;
    return static_cast<int>(std::count_if(consumers.begin(), consumers.end(), [&](OpId id) { return id < end_; }));
  }

  Marks ResidualStream() const {
    Marks marks(graph_.values().size());
    for (OpId id = 0; id < end_; ++id) {
      const Op& op = graph_.op(id);
      if (ClassOf(op) == OpClass::kGather && HasTrainable(op)) marks[op.outputs[0]] = 1;
      if (!Merges(op)) continue;
      marks[op.outputs[0]] = 1;
      for (ValueId v : op.inputs) {
        while (Moves(graph_.op(graph_.value(v).producer)) && ForwardConsumers(v) == 1 &&
               graph_.op(graph_.value(v).producer).inputs.size() == 1) {
          v = graph_.op(graph_.value(v).producer).inputs[0];
        }
        if (ForwardConsumers(v) > 1) marks[v] = 1;
      }
    }
    // ResNet's rectified sums, dropout behind an embedding.
    CarryForward([&](const Op& op) { return op.inputs.size() == 1 && (Moves(op) || ClassOf(op) == OpClass::kElementwise); }, marks);
    return marks;
  }

  Marks NormalizedValues() const {
    Marks marks(graph_.values().size());
    for (OpId id = 0; id < end_; ++id) {
      const Op& op = graph_.op(id);
      if (ClassOf(op) == OpClass::kNormalization && SchemaOf(op).role == OpRole::kParametric) marks[op.outputs[0]] = 1;
    }
    CarryForward([&](const Op& op) { return op.inputs.size() == 1 && Moves(op); }, marks);
    return marks;
  }

  template <typename Through>
  void CarryForward(Through through, Marks& marks) const {
    for (OpId id = 0; id < end_; ++id) {
      const Op& op = graph_.op(id);
      if (op.inputs.empty() || !marks[op.inputs[0]] || !op.parameters.empty() || !through(op)) continue;
      for (const ValueId v : op.outputs) marks[v] = 1;
    }
  }

  const Graph& graph_;
  const OpId end_;
  Marks learned_;
  std::vector<ActivationKind> kinds_;
};

}  // namespace

absl::string_view Name(ActivationKind kind) { return kNames[static_cast<size_t>(kind)]; }

absl::StatusOr<ActivationKind> ParseActivationKind(absl::string_view text) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == text) return static_cast<ActivationKind>(i);
  }
  return absl::InvalidArgumentError(absl::StrCat("'", text, "' is no kind of activation"));
}

std::vector<ActivationKind> ActivationKindsOf(const Graph& graph, OpId forward_ops) { return Kinds(graph, forward_ops).Find(); }

}  // namespace fusionllm::opdag
