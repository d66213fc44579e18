// Reads golden/*.golden: small graphs with inputs, and the outputs and gradients that PyTorch computed for them (make_goldens.py, which
// also describes the format).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/tensor/tensor.h"

namespace fusionllm::numerics {

struct GoldenTensor {
  tensor::TensorType type;
  std::vector<double> numbers;
};

struct GoldenCase {
  std::string name;
  std::string graph;  // the text form; empty for a model, which `options` describe
  std::map<std::string, std::string> options;
  double tolerance = 0;  // of this case; 0: the usual one
  // By kind of line ("feed", "param", "value", "grad", "state", "digest"), then by name.
  std::map<std::string, std::map<std::string, GoldenTensor>> tensors;
};

// Errors name the line. `path` is relative to the source tree.
absl::StatusOr<std::vector<GoldenCase>> ReadGoldens(absl::string_view path);

// The files that hold cases of single ops.
std::vector<std::string> OpGoldenPaths();

// Writes the numbers into a tensor of the same type; the caller has compared the types.
void CopyNumbers(const GoldenTensor& from, const tensor::TensorView& to);

}  // namespace fusionllm::numerics
