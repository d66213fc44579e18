#include "lib/autodiff/rules/families.h"

namespace fusionllm::autodiff::rules {
namespace {

void Softmax(RuleContext& c) { c.SetInputGradient(0, c.Emit("", OpKind::kSoftmaxGrad, {c.output(0), c.dy()})); }
void LogSoftmax(RuleContext& c) { c.SetInputGradient(0, c.Emit("", OpKind::kLogSoftmaxGrad, {c.output(0), c.dy()})); }

}  // namespace

void AddSoftmax(std::vector<GradientRule>& rules) {
  rules.push_back({OpKind::kSoftmax, Softmax});
  rules.push_back({OpKind::kLogSoftmax, LogSoftmax});
}

}  // namespace fusionllm::autodiff::rules
