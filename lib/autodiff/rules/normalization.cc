#include "lib/autodiff/rules/families.h"

namespace fusionllm::autodiff::rules {
namespace {

// The gradient ops of both norms give dx, dweight, dbias from x, dy and the statistics that the forward kept.
void Normalize(RuleContext& c, OpKind kind, const opdag::Attributes& attributes) {
  const opdag::ValueId dx = c.Emit("", kind, {c.input(0), c.dy(), c.output(1), c.output(2)}, attributes, {c.op().parameters[0]});
  if (c.NeedsInputGradient(0)) c.SetInputGradient(0, dx);
  c.SetParameterGradient(0, c.Output(dx, 1));
  c.SetParameterGradient(1, c.Output(dx, 2));
}

void LayerNorm(RuleContext& c) { Normalize(c, OpKind::kLayerNormGrad, {}); }
void BatchNorm(RuleContext& c) { Normalize(c, OpKind::kBatchNormGrad, {}); }

}  // namespace

void AddNormalization(std::vector<GradientRule>& rules) {
  rules.push_back({OpKind::kLayerNorm, LayerNorm});
  rules.push_back({OpKind::kBatchNorm, BatchNorm});
}

}  // namespace fusionllm::autodiff::rules
