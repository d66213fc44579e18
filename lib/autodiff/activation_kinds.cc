#include "lib/autodiff/activation_kinds.h"

namespace fusionllm::autodiff {

std::vector<opdag::ActivationKind> ActivationKindsOf(const TrainingGraph& training) {
  std::vector<opdag::ActivationKind> kinds = opdag::ActivationKindsOf(training.graph, training.forward_ops);
  for (size_t v = 0; v < kinds.size(); ++v) {
    if (v >= training.gradient_of.size() || training.gradient_of[v] == opdag::kNone) kinds[v] = opdag::ActivationKind::kData;
  }
  return kinds;
}

}  // namespace fusionllm::autodiff
