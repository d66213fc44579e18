#include "lib/autodiff/rules/families.h"

namespace fusionllm::autodiff::rules {
namespace {

void Attention(RuleContext& c) {
  c.SetInputGradient(0, c.Emit("", OpKind::kAttentionGrad, {c.input(0), c.output(0), c.output(1), c.dy()}, c.attributes()));
}

}  // namespace

void AddAttention(std::vector<GradientRule>& rules) { rules.push_back({OpKind::kAttention, Attention}); }

}  // namespace fusionllm::autodiff::rules
