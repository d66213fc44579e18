// Gradient rules: how to append the backward ops of one forward op. One rule per op type, in rules/<family>.cc.
//
// A rule reads the forward op, its values and the gradients of its outputs from the context, emits ops, and names the results. It emits
// nothing for inputs that want no gradient. Rules are pure: the same forward op gives the same backward ops, wherever it is placed.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/opdag/graph.h"

namespace fusionllm::autodiff {

class RuleContext {
 public:
  RuleContext(opdag::Graph& graph, opdag::OpId op, std::vector<opdag::ValueId> output_gradients, std::vector<bool> needs_input_gradient);

  const opdag::Op& op() const { return op_; }
  const opdag::Attributes& attributes() const { return op_.attributes; }
  opdag::ValueId input(int index) const { return op_.inputs[index]; }
  opdag::ValueId output(int index) const { return op_.outputs[index]; }
  const tensor::TensorType& type(opdag::ValueId value) const { return graph_.value(value).type; }
  const tensor::Shape& shape(opdag::ValueId value) const { return graph_.value(value).type.shape; }

  // Gradient of an output; kNone where none flows. dy(0) exists for every rule but those of several differentiable outputs.
  opdag::ValueId dy(int output = 0) const { return output_gradients_[output]; }
  bool NeedsInputGradient(int input) const { return needs_input_gradient_[input]; }
  bool NeedsParameterGradients() const;  // any of the op's parameters is trainable

  // Appends a backward op named "<forward op>.grad[.suffix]" and returns its first output. The first error sticks.
  opdag::ValueId Emit(absl::string_view suffix, opdag::OpKind kind, std::vector<opdag::ValueId> inputs, opdag::Attributes attributes = {},
                      std::vector<opdag::ParameterId> parameters = {});
  opdag::ValueId Output(opdag::ValueId first, int index) const;
  // `value` summed to the shape of input `input`, if broadcasting made it larger.
  opdag::ValueId SumToInput(opdag::ValueId value, int input);

  void SetInputGradient(int input, opdag::ValueId gradient) { input_gradients_[input] = gradient; }
  void SetParameterGradient(int slot, opdag::ValueId gradient) { parameter_gradients_[slot] = gradient; }
  // A rule's refusal.
  void Fail(absl::Status status);

  const absl::Status& status() const { return status_; }
  const std::vector<opdag::ValueId>& input_gradients() const { return input_gradients_; }
  const std::vector<opdag::ValueId>& parameter_gradients() const { return parameter_gradients_; }

 private:
  opdag::Graph& graph_;
  const opdag::OpId id_;
  const opdag::Op op_;  // a copy: appending ops moves the table
  const std::vector<opdag::ValueId> output_gradients_;
  const std::vector<bool> needs_input_gradient_;
  std::vector<opdag::ValueId> input_gradients_;
  std::vector<opdag::ValueId> parameter_gradients_;
  absl::Status status_;
};

struct GradientRule {
  opdag::OpKind kind;
  void (*apply)(RuleContext& context) = nullptr;
  bool every_output = false;  // gradients may flow into any output, not the first alone
};

// nullptr when the op has none: placeholder and constant, which no gradient reaches, and ops that autodiff itself made.
const GradientRule* FindRule(opdag::OpKind kind);

// Appends an op to a typed graph under a name that is free ("name", "name_2", ..) and types it.
absl::StatusOr<opdag::OpId> AppendTyped(opdag::Graph& graph, opdag::Op op);

}  // namespace fusionllm::autodiff
