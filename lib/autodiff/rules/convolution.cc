#include "lib/autodiff/rules/families.h"

namespace fusionllm::autodiff::rules {
namespace {

void Conv2d(RuleContext& c) {
  if (c.NeedsParameterGradients()) {
    const opdag::ValueId dweight = c.Emit("weight", OpKind::kConv2dGradWeight, {c.input(0), c.dy()}, c.attributes());
    c.SetParameterGradient(0, dweight);
    if (c.attributes().Bool("bias", false)) c.SetParameterGradient(1, c.Output(dweight, 1));
  }
  if (c.NeedsInputGradient(0)) {
    opdag::Attributes attributes = c.attributes();
    attributes.Set("in_shape", c.shape(c.input(0)).dims());
    c.SetInputGradient(0, c.Emit("input", OpKind::kConv2dGradInput, {c.dy()}, std::move(attributes), {c.op().parameters[0]}));
  }
}

}  // namespace

void AddConvolution(std::vector<GradientRule>& rules) { rules.push_back({OpKind::kConv2d, Conv2d}); }

}  // namespace fusionllm::autodiff::rules
