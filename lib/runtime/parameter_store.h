// The tensors a stage owns: parameters, one gradient buffer for each use, optimizer state. Keyed by parameter name in checkpoints.
//
// Not thread-safe: one stage thread owns it. Memory is allocated once, at construction.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lib/autodiff/training_graph.h"
#include "lib/runtime/message.h"
#include "lib/runtime/optimizer.h"
#include "lib/runtime/stage_program.h"
#include "lib/tensor/tensor.h"

namespace fusionllm::runtime {

// Fills a new parameter by its initializer from base::CounterRng(seed, name): the same bits wherever it is made.
void Initialize(const opdag::Parameter& parameter, uint64_t seed, tensor::TensorView out);

class ParameterStore {
 public:
  // `training` and `program` must outlive the store.
  ParameterStore(const autodiff::TrainingGraph& training, const StageProgram& program, const OptimizerConfig& optimizer);

  void InitializeAll(uint64_t seed);

  tensor::TensorView parameter(opdag::ParameterId id) { return parameters_.at(id).value.view(); }
  tensor::TensorView use_gradient(int use) { return use_gradients_.at(use).view(); }

  // Every tensor of a checkpoint this stage is responsible for, as (name, view). A parameter shared between stages is written by the
  // lowest one. Optimizer state is named "<parameter>.<state>", and is empty before the first update.
  void ForEachParameter(const std::function<void(const std::string&, tensor::TensorView)>& visit, bool owned_only);
  void ForEachState(const std::function<void(const std::string&, tensor::TensorView)>& visit, bool owned_only);

  // Sums the uses of each trainable parameter in the order of TrainingGraph::uses; `remote` holds other stages' use gradients by use index.
  // The result lies in the first local use's buffer. Errors: InvalidArgument when a remote gradient is missing or of the wrong size.
  absl::Status CombineUses(const std::map<int, Payload>& remote);

  // After CombineUses: (parameter id, sum of squares of its gradient), for trainable parameters this stage is the lowest user of.
  std::vector<std::pair<opdag::ParameterId, double>> SumsOfSquares();

  // Applies one optimizer step from the combined gradients.
  void Update(double learning_rate, int64_t step, float gradient_scale);

  // Whether this stage is the one that writes the parameter to checkpoints and reports its gradient.
  bool Owns(opdag::ParameterId id) const;

 private:
  struct Entry {
    tensor::Tensor value;
    std::vector<tensor::Tensor> state;
    std::vector<int> uses;          // all uses, of every stage, in canonical order
    int result_use = opdag::kNone;  // the first local one
    bool owned = false;
  };
  std::span<float> CombinedGradient(const Entry& entry);

  const autodiff::TrainingGraph& training_;
  const OptimizerConfig optimizer_;
  std::map<opdag::ParameterId, Entry> parameters_;
  std::map<int, tensor::Tensor> use_gradients_;
};

}  // namespace fusionllm::runtime
