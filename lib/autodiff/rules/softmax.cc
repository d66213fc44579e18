#include "lib/autodiff/rules/families.h"

namespace fusionllm::autodiff::rules {
namespace {

void Softmax(RuleContext& c) { c.SetInputGradient(0, c.Emit("", "softmax_grad", {c.output(0), c.dy()})); }
void LogSoftmax(RuleContext& c) { c.SetInputGradient(0, c.Emit("", "log_softmax_grad", {c.output(0), c.dy()})); }

}  // namespace

void AddSoftmax(std::vector<GradientRule>& rules) {
  rules.push_back({"softmax", Softmax});
  rules.push_back({"log_softmax", LogSoftmax});
}

}  // namespace fusionllm::autodiff::rules
