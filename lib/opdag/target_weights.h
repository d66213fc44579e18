// Losses that other ops make of one or several cross_entropy ops: rewritten so that each of these is a mean over all targets that count in
// the global batch, whatever micro-batches it is cut into.
//
// A cross_entropy tells the mean over those of a micro-batch, and where these are not equally many in all of them, the mean of such means
// is another number. A loss that is itself a cross_entropy is weighed by what runs it (autodiff::TrainingGraph::counted); one that is
// made of several, or of one and other terms, cannot be, because each term has a weight of its own. So `loss` of such an op becomes
// loss * counted * target_weight, the last filled by the runtime before the pass: one over the share of the op's labels that count in the
// whole batch (or the whole set, of an evaluation), which depends on the data alone. The mean of that over micro-batches is the mean over
// targets, and so is that of any sum of such terms. Pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/opdag/graph.h"

namespace fusionllm::opdag {

// The role of the placeholder that AddTargetWeights adds; its attribute `of` names the cross_entropy.
inline constexpr absl::string_view kTargetWeightRole = "target_weight";

// Of a cross_entropy that names none, as PyTorch's.
inline constexpr int64_t kDefaultIgnoreIndex = -100;

// The cross_entropy ops that the loss depends on, ascending. None where the graph has no loss.
std::vector<OpId> TargetOps(const Graph& graph);

// The placeholder whose ids are the labels of a cross_entropy, which may be reshaped in between. kNone: they are made otherwise.
OpId LabelsOf(const Graph& graph, const Op& cross_entropy);

// The graph with weights, untyped as it was. As it is where the loss is itself a cross_entropy, where it depends on none, and where this
// has been done. Errors: InvalidArgument naming an op that makes something else of a cross_entropy's loss than a linear function, with the
// remedy.
absl::StatusOr<Graph> AddTargetWeights(const Graph& graph);

}  // namespace fusionllm::opdag
