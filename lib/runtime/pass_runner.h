// Runs the passes of a stage program: kernels bound to their memory, received edges decoded, cut edges sent as soon as they exist.
// Internal to lib/runtime. Not thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "lib/autodiff/training_graph.h"
#include "lib/kernels/backend.h"
#include "lib/runtime/device_pacer.h"
#include "lib/runtime/edge_codec.h"
#include "lib/runtime/message.h"
#include "lib/runtime/op_times.h"
#include "lib/runtime/parameter_store.h"
#include "lib/runtime/stage_program.h"

namespace fusionllm::runtime {

// One run of a pass.
struct PassContext {
  MessageKind kind = MessageKind::kValue;
  int64_t step = 0;
  int micro_batch = 0;
  int slot = 0;
  bool accumulate = false;  // parameter gradients: add to what earlier micro-batches left
  kernels::Mode mode = kernels::Mode::kTrain;
  kernels::RandomContext random;
};

class PassRunner {
 public:
  // Fills the placeholders that the pass meets.
  using FillPlaceholder = std::function<absl::Status(const PassContext&, const opdag::Op&, tensor::TensorView)>;

  // Every reference must outlive the runner. Errors: what Backend::Prepare says; InvalidArgument for a codec whose tensors live neither on
  // the host nor in the back end's memory.
  static absl::StatusOr<std::unique_ptr<PassRunner>> Create(const autodiff::TrainingGraph& training, const StageProgram& program, int slots,
                                                            ParameterStore& store, kernels::Backend& backend, EdgeCodec& codec,
                                                            MessagePort& port, Inbox& inbox, DevicePacer& pacer, FillPlaceholder fill);

  // The messages a run waits for.
  std::vector<MessageKey> Awaited(const Pass& pass, const PassContext& context) const;
  // Runs `pass` of the program, one of program.{forward, backward, evaluate}; its messages must have arrived or Run blocks for them.
  // Errors name the op. Returns the device's seconds.
  absl::StatusOr<double> Run(const Pass& pass, const PassContext& context);
  // A number after a pass; of the ops that own_loss keeps alive. Waits for the pass. Errors: those that kernels found late.
  absl::StatusOr<float> NumberAfter(const Pass& pass, opdag::ValueId value, int slot) const;

  // After the forward pass of `slot`: says where the first value that is not finite came from, of those that the backward pass keeps; empty
  // when none is.
  std::string FirstNotFinite(int slot);

  // Runs the ops of forward and backward passes in turn, through all slots as training does, without messages. Every op of the stage
  // comes once, in ascending order. Errors: kernels' and the placeholders', naming the op; Cancelled.
  absl::StatusOr<std::vector<OpTime>> Measure(const MeasureOptions& options);

  const std::vector<int64_t>& sent_bytes() const { return sent_bytes_; }

 private:
  // An op's kernel arguments with every address resolved, for one slot.
  struct BoundOp {
    std::vector<tensor::ConstTensorView> inputs;
    std::vector<tensor::TensorView> parameters;
    std::vector<tensor::TensorView> outputs;
    std::unique_ptr<bool[]> accumulate;  // by output: it is a parameter gradient
  };
  PassRunner(const autodiff::TrainingGraph& training, const StageProgram& program, ParameterStore& store, kernels::Backend& backend,
             EdgeCodec& codec, MessagePort& port, Inbox& inbox, DevicePacer& pacer, FillPlaceholder fill);
  absl::Status Allocate(int slots);
  absl::Status Bind(const Pass& pass, int slots, std::vector<std::vector<BoundOp>>& bound);
  std::vector<BoundOp>& BoundOf(const Pass& pass, int slot);
  absl::Status Receive(const Pass& pass, const PassContext& context);
  // A real device's time passes by itself, and asking for it is a system call: as dear as a small op.
  int64_t CpuNow() const { return pacer_.emulate() ? ThreadCpuNanoseconds() : 0; }
  absl::Status RunOp(BoundOp& bound, const ProgramOp& op, const PassContext& context);
  // Runs the ops of a pass once and appends the nanoseconds that each took to its list.
  absl::Status TimePass(const Pass& pass, const PassContext& context, bool thread_cpu, std::vector<std::vector<int64_t>>& taken);
  absl::Status SendEdges(const Pass& pass, const ProgramOp& op, const PassContext& context);
  tensor::TensorView ViewOf(const Pass& pass, opdag::ValueId value, int slot) const;
  bool CodecTakesTensors() const { return &codec_.memory() == &memory_; }  // as they are
  // For what the host reads and writes: the tensor itself, or room for a copy of it, good until the next call.
  tensor::TensorView HostRoom(const tensor::TensorView& view);
  // A tensor as the host can read it. Waits for what computes it.
  absl::StatusOr<tensor::ConstTensorView> ReadableByHost(const tensor::TensorView& view);
  bool AllFinite(const tensor::TensorView& view);

  const autodiff::TrainingGraph& training_;
  const StageProgram& program_;
  ParameterStore& store_;
  kernels::Backend& backend_;
  tensor::Memory& memory_;
  EdgeCodec& codec_;
  MessagePort& port_;
  Inbox& inbox_;
  DevicePacer& pacer_;
  const FillPlaceholder fill_;

  std::vector<std::unique_ptr<kernels::Kernel>> kernels_;  // by op id; empty for other stages' ops
  tensor::MemoryBlock scratch_;
  tensor::MemoryBlock workspace_;
  std::vector<tensor::MemoryBlock> slots_;
  tensor::Buffer staging_;  // the host's, where tensors live elsewhere
  // By slot, then by position in the pass.
  std::vector<std::vector<BoundOp>> forward_;
  std::vector<std::vector<BoundOp>> backward_;
  std::vector<std::vector<BoundOp>> evaluate_;
  std::vector<int64_t> sent_bytes_;
};

}  // namespace fusionllm::runtime
