#include "lib/autodiff/rules/families.h"

namespace fusionllm::autodiff::rules {
namespace {

using opdag::ValueId;

void Add(RuleContext& c) {
  for (const int i : {0, 1}) {
    if (c.NeedsInputGradient(i)) c.SetInputGradient(i, c.SumToInput(c.dy(), i));
  }
}

void Sub(RuleContext& c) {
  if (c.NeedsInputGradient(0)) c.SetInputGradient(0, c.SumToInput(c.dy(), 0));
  if (c.NeedsInputGradient(1)) c.SetInputGradient(1, c.SumToInput(c.Emit("b", OpKind::kNeg, {c.dy()}), 1));
}

void Mul(RuleContext& c) {
  if (c.NeedsInputGradient(0)) c.SetInputGradient(0, c.SumToInput(c.Emit("a", OpKind::kMul, {c.dy(), c.input(1)}), 0));
  if (c.NeedsInputGradient(1)) c.SetInputGradient(1, c.SumToInput(c.Emit("b", OpKind::kMul, {c.dy(), c.input(0)}), 1));
}

// y = a / b: da = dy / b, db = -dy y / b.
void Div(RuleContext& c) {
  if (c.NeedsInputGradient(0)) c.SetInputGradient(0, c.SumToInput(c.Emit("a", OpKind::kDiv, {c.dy(), c.input(1)}), 0));
  if (c.NeedsInputGradient(1)) {
    const ValueId product = c.Emit("product", OpKind::kMul, {c.dy(), c.output(0)});
    const ValueId quotient = c.Emit("quotient", OpKind::kDiv, {product, c.input(1)});
    c.SetInputGradient(1, c.SumToInput(c.Emit("b", OpKind::kNeg, {quotient}), 1));
  }
}

void Gelu(RuleContext& c) { c.SetInputGradient(0, c.Emit("", OpKind::kGeluGrad, {c.input(0), c.dy()}, c.attributes())); }
void Relu(RuleContext& c) { c.SetInputGradient(0, c.Emit("", OpKind::kReluGrad, {c.output(0), c.dy()})); }
void Tanh(RuleContext& c) { c.SetInputGradient(0, c.Emit("", OpKind::kTanhGrad, {c.output(0), c.dy()})); }
void Sigmoid(RuleContext& c) { c.SetInputGradient(0, c.Emit("", OpKind::kSigmoidGrad, {c.output(0), c.dy()})); }
void Exp(RuleContext& c) { c.SetInputGradient(0, c.Emit("", OpKind::kMul, {c.dy(), c.output(0)})); }
void Log(RuleContext& c) { c.SetInputGradient(0, c.Emit("", OpKind::kDiv, {c.dy(), c.input(0)})); }
void Neg(RuleContext& c) { c.SetInputGradient(0, c.Emit("", OpKind::kNeg, {c.dy()})); }
void Dropout(RuleContext& c) { c.SetInputGradient(0, c.Emit("", OpKind::kDropoutGrad, {c.dy()}, c.attributes())); }

// y = sqrt(x): dx = dy / 2y.
void Sqrt(RuleContext& c) {
  const ValueId quotient = c.Emit("quotient", OpKind::kDiv, {c.dy(), c.output(0)});
  c.SetInputGradient(0, c.Emit("", OpKind::kScale, {quotient}, {{"factor", 0.5}}));
}

void Square(RuleContext& c) {
  const ValueId product = c.Emit("product", OpKind::kMul, {c.dy(), c.input(0)});
  c.SetInputGradient(0, c.Emit("", OpKind::kScale, {product}, {{"factor", 2.0}}));
}

void Scale(RuleContext& c) {
  c.SetInputGradient(0, c.Emit("", OpKind::kScale, {c.dy()}, {{"factor", c.attributes().Number("factor", 1)}}));
}

}  // namespace

void AddElementwise(std::vector<GradientRule>& rules) {
  rules.insert(rules.end(), {{OpKind::kAdd, Add},
                             {OpKind::kSub, Sub},
                             {OpKind::kMul, Mul},
                             {OpKind::kDiv, Div},
                             {OpKind::kGelu, Gelu},
                             {OpKind::kRelu, Relu},
                             {OpKind::kTanh, Tanh},
                             {OpKind::kSigmoid, Sigmoid},
                             {OpKind::kExp, Exp},
                             {OpKind::kLog, Log},
                             {OpKind::kNeg, Neg},
                             {OpKind::kDropout, Dropout},
                             {OpKind::kSqrt, Sqrt},
                             {OpKind::kSquare, Square},
                             {OpKind::kScale, Scale}});
}

}  // namespace fusionllm::autodiff::rules
