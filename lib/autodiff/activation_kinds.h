// What crosses a cut of a training graph, by kind: the one answer that planner, encoders and decoders share.
#pragma once

#include <vector>

#include "lib/autodiff/training_graph.h"
#include "lib/opdag/activation_kind.h"

namespace fusionllm::autodiff {

// By value id of the whole graph: opdag::ActivationKindsOf, where a forward value that gets no gradient is kData as well, like every
// backward value. Kinds of gradients are those of their forward values.
std::vector<opdag::ActivationKind> ActivationKindsOf(const TrainingGraph& training);

}  // namespace fusionllm::autodiff
