// Runs a typed graph op by op on one back end, every value in memory of its own: slow, plain, and independent of the runtime.
//
// Not thread-safe. Placeholders are filled by the caller.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/kernels/backend.h"
#include "lib/opdag/graph.h"
#include "lib/tensor/tensor.h"

namespace fusionllm::numerics {

class Evaluator {
 public:
  // Copies the graph. Parameters start as their initialisers say, from `seed`. Errors: an op without a kernel, named.
  static absl::StatusOr<std::unique_ptr<Evaluator>> Create(const opdag::Graph& graph, absl::string_view backend, uint64_t seed = 1);

  const opdag::Graph& graph() const { return graph_; }
  tensor::Tensor& value(opdag::ValueId id) { return values_[id]; }
  tensor::Tensor& parameter(opdag::ParameterId id) { return parameters_[id]; }
  double loss() { return values_[graph_.loss()].f32()[0]; }

  // Ops [begin, end), parameter gradients overwritten, in training mode.
  absl::Status Run(opdag::OpId begin, opdag::OpId end);

 private:
  Evaluator() = default;

  opdag::Graph graph_;
  std::unique_ptr<kernels::Backend> backend_;
  std::vector<std::unique_ptr<kernels::Kernel>> kernels_;  // nullptr for placeholders
  std::vector<tensor::Tensor> values_;
  std::vector<tensor::Tensor> parameters_;
  tensor::Buffer workspace_;
};

}  // namespace fusionllm::numerics
