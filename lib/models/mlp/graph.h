// A multi-layer perceptron for classification: linear layers with an activation between them, cross entropy at the end.
//
// Parameters: layers.<i>.weight [out, in] and layers.<i>.bias, as torch.nn.Linear lays them out and starts them (uniform +-1/sqrt(in)).
// Placeholders: "images" (role images) f32[b, layers[0]] and "labels" (role labels) i32[b]; loss op "loss".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/opdag/graph.h"

namespace fusionllm::models {

struct MlpOptions {
  std::vector<int64_t> layers = {784, 256, 10};  // widths, input first and classes last
  std::string activation = "relu";               // relu | gelu | tanh | sigmoid
};

// Errors: InvalidArgument for fewer than two widths, widths that are not positive, or an unknown activation.
absl::StatusOr<opdag::Graph> BuildMlp(const MlpOptions& options);

}  // namespace fusionllm::models
