#include "lib/autodiff/rules/families.h"

namespace fusionllm::autodiff::rules {
namespace {

void CrossEntropy(RuleContext& c) {
  c.SetInputGradient(0, c.Emit("", OpKind::kCrossEntropyGrad, {c.input(0), c.input(1), c.output(2), c.dy()}, c.attributes()));
}

void Mse(RuleContext& c) {
  const opdag::ValueId dx = c.Emit("", OpKind::kMseGrad, {c.input(0), c.input(1), c.dy()});
  if (c.NeedsInputGradient(0)) c.SetInputGradient(0, dx);
  if (c.NeedsInputGradient(1)) c.SetInputGradient(1, c.Emit("target", OpKind::kNeg, {dx}));
}

}  // namespace

void AddLoss(std::vector<GradientRule>& rules) {
  rules.push_back({OpKind::kCrossEntropy, CrossEntropy});
  rules.push_back({OpKind::kMse, Mse});
}

}  // namespace fusionllm::autodiff::rules
