#include "lib/autodiff/rules/families.h"

namespace fusionllm::autodiff::rules {
namespace {

opdag::Attributes WithInputShape(const RuleContext& c) {
  opdag::Attributes attributes = c.attributes();
  attributes.Set("in_shape", c.shape(c.input(0)).dims());
  return attributes;
}

void MaxPool(RuleContext& c) { c.SetInputGradient(0, c.Emit("", OpKind::kMaxPool2dGrad, {c.dy(), c.output(1)}, WithInputShape(c))); }
void AveragePool(RuleContext& c) { c.SetInputGradient(0, c.Emit("", OpKind::kAvgPool2dGrad, {c.dy()}, WithInputShape(c))); }

void GlobalAveragePool(RuleContext& c) {
  const tensor::Shape& x = c.shape(c.input(0));
  const opdag::Attributes attributes = {{"height", x[1]}, {"width", x[2]}};
  c.SetInputGradient(0, c.Emit("", OpKind::kGlobalAvgPoolGrad, {c.dy()}, attributes));
}

}  // namespace

void AddPooling(std::vector<GradientRule>& rules) {
  rules.push_back({OpKind::kMaxPool2d, MaxPool});
  rules.push_back({OpKind::kAvgPool2d, AveragePool});
  rules.push_back({OpKind::kGlobalAvgPool, GlobalAveragePool});
}

}  // namespace fusionllm::autodiff::rules
