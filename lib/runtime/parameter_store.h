// The tensors a stage owns: parameters, one gradient buffer for each use, optimizer state. Keyed by parameter name in checkpoints.
//
// They live in the back end's memory. Where that is a device's, the host sees copies: PullToHost makes them, PushToDevice brings changes
// back, and both cost nothing where there is no device. Not thread-safe: one stage thread owns it. Memory is allocated once, at
// construction; copies for the host when first asked for.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/autodiff/training_graph.h"
#include "lib/kernels/backend.h"
#include "lib/kernels/optimizer.h"
#include "lib/runtime/message.h"
#include "lib/runtime/stage_program.h"
#include "lib/tensor/memory.h"
#include "lib/tensor/tensor.h"

namespace fusionllm::runtime {

// Fills a new parameter by its initializer from base::CounterRng(seed, name): the same bits wherever it is made. `out` is the host's.
void Initialize(const opdag::Parameter& parameter, uint64_t seed, tensor::TensorView out);

class ParameterStore {
 public:
  // `training`, `program` and `backend` must outlive the store. All tensors are zero. Errors: ResourceExhausted when memory is short.
  static absl::StatusOr<std::unique_ptr<ParameterStore>> Create(const autodiff::TrainingGraph& training, const StageProgram& program,
                                                                const kernels::OptimizerConfig& optimizer, kernels::Backend& backend);

  absl::Status InitializeAll(uint64_t seed);

  // In the back end's memory.
  tensor::TensorView parameter(opdag::ParameterId id) { return values_.view(parameters_.at(id).value); }
  tensor::TensorView per_use_gradient(int use) { return gradients_.view(per_use_gradients_.at(use)); }

  // A gradient, copied to the host.
  absl::StatusOr<std::vector<float>> ReadPerUseGradient(int use);
  // As many elements as it has.
  absl::Status WritePerUseGradient(int use, std::span<const float> gradient);

  // Every tensor of a checkpoint this stage is responsible for, as (name, view for the host). A parameter shared between stages is written
  // by the lowest one. Optimizer state is named "<parameter>.<state>", and is empty before the first update.
  // On a device a view shows what was there at the last PullToHost, zeros before; what is written to it counts after PushToDevice. Views
  // stay valid as long as the store.
  void ForEachParameter(const std::function<void(const std::string&, tensor::TensorView)>& visit, bool owned_only);
  void ForEachState(const std::function<void(const std::string&, tensor::TensorView)>& visit, bool owned_only);
  absl::Status PullToHost();
  absl::Status PushToDevice();

  // Sum the uses of each trainable parameter in the order of TrainingGraph::uses: of those that no other stage uses, and of the others;
  // `remote` holds other stages' use gradients by use index. Each once a step: the result lies in the first local use's buffer. Errors:
  // InvalidArgument when a remote gradient is missing or of the wrong size.
  absl::Status CombineLocalUses();
  absl::Status CombineSharedUses(const std::map<int, std::vector<float>>& remote);

  // After both: (parameter id, sum of squares of its gradient), for trainable parameters this stage is the lowest user of.
  absl::StatusOr<std::vector<std::pair<opdag::ParameterId, double>>> SumsOfSquares();

  // Applies one optimizer step from the combined gradients.
  absl::Status Update(double learning_rate, int64_t step, float gradient_scale);

  // Whether this stage is the one that writes the parameter to checkpoints and reports its gradient.
  bool Owns(opdag::ParameterId id) const;

 private:
  struct Place {
    tensor::TensorType type;
    size_t offset = 0;
  };
  // Tensors side by side in one block of the back end's memory, and as many bytes of the host where it must have copies.
  class Arena {
   public:
    Place Add(const tensor::TensorType& type);
    absl::Status Allocate(tensor::Memory& memory);
    tensor::TensorView view(const Place& place) const { return {place.type, block_.data() + place.offset}; }
    tensor::TensorView host_view(const Place& place);
    absl::Status Pull();
    absl::Status Push();

   private:
    tensor::Memory* memory_ = nullptr;
    tensor::MemoryBlock block_;
    tensor::Buffer mirror_;
    size_t bytes_ = 0;
  };
  struct Entry {
    Place value;
    std::vector<Place> state;
    std::vector<int> uses;          // all uses, of every stage, in canonical order
    int result_use = opdag::kNone;  // the first local one
    bool shared = false;            // with another stage
    bool owned = false;
  };
  ParameterStore(const autodiff::TrainingGraph& training, const StageProgram& program, const kernels::OptimizerConfig& optimizer,
                 kernels::Backend& backend);
  tensor::TensorView CombinedGradient(const Entry& entry) const { return gradients_.view(per_use_gradients_.at(entry.result_use)); }
  absl::Status CombineUsesOf(opdag::ParameterId id, const Entry& entry, const std::map<int, std::vector<float>>& remote);

  const autodiff::TrainingGraph& training_;
  const kernels::OptimizerConfig optimizer_;
  kernels::Backend& backend_;
  Arena values_, states_, gradients_;
  std::map<opdag::ParameterId, Entry> parameters_;
  std::map<int, Place> per_use_gradients_;
  tensor::MemoryBlock arrived_;  // gradients from other stages, brought to a device
};

}  // namespace fusionllm::runtime
