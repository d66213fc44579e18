#include "lib/autodiff/rules/families.h"

namespace fusionllm::autodiff::rules {
namespace {

using opdag::ValueId;

void Add(RuleContext& c) {
  for (const int i : {0, 1}) {
    if (c.Wants(i)) c.SetInputGradient(i, c.SumToInput(c.dy(), i));
  }
}

void Sub(RuleContext& c) {
  if (c.Wants(0)) c.SetInputGradient(0, c.SumToInput(c.dy(), 0));
  if (c.Wants(1)) c.SetInputGradient(1, c.SumToInput(c.Emit("b", "neg", {c.dy()}), 1));
}

void Mul(RuleContext& c) {
  if (c.Wants(0)) c.SetInputGradient(0, c.SumToInput(c.Emit("a", "mul", {c.dy(), c.input(1)}), 0));
  if (c.Wants(1)) c.SetInputGradient(1, c.SumToInput(c.Emit("b", "mul", {c.dy(), c.input(0)}), 1));
}

// y = a / b: da = dy / b, db = -dy y / b.
void Div(RuleContext& c) {
  if (c.Wants(0)) c.SetInputGradient(0, c.SumToInput(c.Emit("a", "div", {c.dy(), c.input(1)}), 0));
  if (c.Wants(1)) {
    const ValueId product = c.Emit("product", "mul", {c.dy(), c.output(0)});
    const ValueId quotient = c.Emit("quotient", "div", {product, c.input(1)});
    c.SetInputGradient(1, c.SumToInput(c.Emit("b", "neg", {quotient}), 1));
  }
}

void Gelu(RuleContext& c) { c.SetInputGradient(0, c.Emit("", "gelu_grad", {c.input(0), c.dy()}, c.attributes())); }
void Relu(RuleContext& c) { c.SetInputGradient(0, c.Emit("", "relu_grad", {c.output(0), c.dy()})); }
void Tanh(RuleContext& c) { c.SetInputGradient(0, c.Emit("", "tanh_grad", {c.output(0), c.dy()})); }
void Sigmoid(RuleContext& c) { c.SetInputGradient(0, c.Emit("", "sigmoid_grad", {c.output(0), c.dy()})); }
void Exp(RuleContext& c) { c.SetInputGradient(0, c.Emit("", "mul", {c.dy(), c.output(0)})); }
void Log(RuleContext& c) { c.SetInputGradient(0, c.Emit("", "div", {c.dy(), c.input(0)})); }
void Neg(RuleContext& c) { c.SetInputGradient(0, c.Emit("", "neg", {c.dy()})); }
void Dropout(RuleContext& c) { c.SetInputGradient(0, c.Emit("", "dropout_grad", {c.dy()}, c.attributes())); }

// y = sqrt(x): dx = dy / 2y.
void Sqrt(RuleContext& c) {
  const ValueId quotient = c.Emit("quotient", "div", {c.dy(), c.output(0)});
  c.SetInputGradient(0, c.Emit("", "scale", {quotient}, {{"factor", 0.5}}));
}

void Square(RuleContext& c) {
  const ValueId product = c.Emit("product", "mul", {c.dy(), c.input(0)});
  c.SetInputGradient(0, c.Emit("", "scale", {product}, {{"factor", 2.0}}));
}

void Scale(RuleContext& c) { c.SetInputGradient(0, c.Emit("", "scale", {c.dy()}, {{"factor", c.attributes().Number("factor", 1)}})); }

}  // namespace

void AddElementwise(std::vector<GradientRule>& rules) {
  rules.insert(rules.end(), {{"add", Add},
                             {"sub", Sub},
                             {"mul", Mul},
                             {"div", Div},
                             {"gelu", Gelu},
                             {"relu", Relu},
                             {"tanh", Tanh},
                             {"sigmoid", Sigmoid},
                             {"exp", Exp},
                             {"log", Log},
                             {"neg", Neg},
                             {"dropout", Dropout},
                             {"sqrt", Sqrt},
                             {"square", Square},
                             {"scale", Scale}});
}

}  // namespace fusionllm::autodiff::rules
