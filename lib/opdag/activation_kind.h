// What a value of the forward graph is to the model: how much loss it costs to send it through a lossy codec depends on that.
//
// Derived from the graph alone, so planner, encoder and decoder agree without a message. Pure function; thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/opdag/graph.h"

namespace fusionllm::opdag {

// In the order of precedence: a value that is two of them counts as the first.
enum class ActivationKind : uint8_t {
  kData,            // depends on no trainable parameter: samples, labels, masks, constants
  kLossInput,       // what a loss reads (logits, predictions), also through ops that learn nothing and only move, scale or map it
  kInnerResidual,   // the stream of a pre-norm transformer but for its two ends: what a skip connection was added to, that a layer norm
                    // reads and the next skip connection carries as it is
  kResidual,        // the rest of a stream that skip connections add to: embeddings, a rectified sum, what the last norm reads
  kAttentionInput,  // queries, keys and values, and whatever else a product of two activations reads
  kNormalized,      // output of a layer norm or batch norm
  kHidden,          // any other activation: inside a block
};
inline constexpr int kActivationKindCount = 7;

// "data", "loss_input", "inner_residual", "residual", "attention_input", "normalized", "hidden".
absl::string_view Name(ActivationKind kind);
// InvalidArgument names the text.
absl::StatusOr<ActivationKind> ParseActivationKind(absl::string_view text);

// By value id, for values of the first `forward_ops` ops of a typed graph (autodiff::TrainingGraph::forward_ops; all ops of a forward
// graph); kData for the rest. Linear in ops and edges.
std::vector<ActivationKind> ActivationKindsOf(const Graph& graph, OpId forward_ops);

}  // namespace fusionllm::opdag
