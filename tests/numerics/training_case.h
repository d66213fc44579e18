// A differentiated graph on a back end, and its gradients by parameter.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/autodiff/training_graph.h"
#include "tests/numerics/evaluator.h"
#include "tests/numerics/golden_file.h"

namespace fusionllm::numerics {

struct TrainingCase {
  autodiff::TrainingGraph training;
  std::unique_ptr<Evaluator> evaluator;

  absl::Status Forward() { return evaluator->Run(0, training.forward_ops); }
  // Forward and backward with a seed of one.
  absl::Status Step();
  // Sum over the parameter's uses, in their order.
  std::vector<double> Gradient(opdag::ParameterId parameter);
};

// `graph` is typed here for micro-batches of `batch`.
absl::StatusOr<TrainingCase> MakeTrainingCase(opdag::Graph graph, int64_t batch, absl::string_view backend, uint64_t seed = 1);

// A single-op case with its feeds and parameters in place. Errors: a tensor that the graph does not have, or of another type.
absl::StatusOr<TrainingCase> MakeTrainingCase(const GoldenCase& golden, absl::string_view backend);

}  // namespace fusionllm::numerics
