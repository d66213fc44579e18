// Residual networks (He et al., arXiv 1512.03385) as torchvision builds them: bottleneck stride on the 3x3 (v1.5), He initialisation.
//
// Parameters have the names and layout of torchvision's state dict, running statistics included; images are NHWC. Convolutions start
// N(0, sqrt(2 / fan_out)), batch norms one and zero, fc uniform +-1/sqrt(fan_in). Placeholders: "images" (role images)
// f32[b, size, size, 3] and "labels" (role labels) i32[b]; loss op "loss".
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "lib/opdag/graph.h"

namespace fusionllm::models {

struct ResNetOptions {
  int depth = 18;                 // 18 | 34 | 50 | 101 | 152
  std::string stem = "imagenet";  // "imagenet": 7x7 stride 2 and a max pool; "cifar": 3x3 stride 1, no pool
  int64_t num_classes = 1000;
  int64_t image_size = 224;
};

// Errors: InvalidArgument for an unknown depth or stem, or sizes that are not possible.
absl::StatusOr<opdag::Graph> BuildResNet(const ResNetOptions& options);

}  // namespace fusionllm::models
