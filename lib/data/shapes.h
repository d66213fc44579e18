// Generated images of drawn shapes with labels: image training without any file.
//
// Sample i has label i mod num_classes (0 circle, 1 square, 2 triangle, 3 cross, 4 ring, 5 horizontal stripes, 6 vertical stripes,
// 7 diagonal stripes, 8 checkerboard, 9 diamond), drawn at a random position and size, in a random colour on a random background of clearly
// different brightness, with uniform noise. Every pixel is a function of (seed, i) alone, in integer arithmetic, so all machines agree on
// every bit. Samples are f32 [size, size, 3], (byte / 255 - 0.5) / 0.25, and an i32 label.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "lib/data/config.h"
#include "lib/data/dataset.h"

namespace fusionllm::data {

// InvalidArgument for a number outside the range given in ShapesConfig.
absl::StatusOr<std::unique_ptr<Dataset>> OpenShapes(const DatasetConfig& config);

}  // namespace fusionllm::data
