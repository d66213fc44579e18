#include "lib/autodiff/rules/families.h"

namespace fusionllm::autodiff::rules {
namespace {

void Embedding(RuleContext& c) {
  const opdag::ValueId dwte = c.Emit("", OpKind::kEmbeddingGrad, {c.input(0), c.dy()}, c.attributes());
  c.SetParameterGradient(0, dwte);
  if (c.op().parameters.size() > 1) c.SetParameterGradient(1, c.Output(dwte, 1));
}

}  // namespace

void AddEmbedding(std::vector<GradientRule>& rules) { rules.push_back({OpKind::kEmbedding, Embedding}); }

}  // namespace fusionllm::autodiff::rules
