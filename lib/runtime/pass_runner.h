// Runs the passes of a stage program: kernels bound to their memory, received edges decoded, cut edges sent as soon as they exist.
// Internal to lib/runtime. Not thread-safe.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "lib/autodiff/training_graph.h"
#include "lib/kernels/backend.h"
#include "lib/runtime/device_throttle.h"
#include "lib/runtime/edge_codec.h"
#include "lib/runtime/fused_ops.h"
#include "lib/runtime/graph_capture.h"
#include "lib/runtime/message.h"
#include "lib/runtime/op_times.h"
#include "lib/runtime/parameter_store.h"
#include "lib/runtime/send_queue.h"
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
  bool at_once = false;      // its messages were there without waiting; see DeviceThrottle::BeginPass
  bool learn_times = false;  // it runs as MeasureOps ran it; see DeviceThrottle::ChargeOp
};

class PassRunner {
 public:
  // Fills the placeholders that the pass meets.
  using FillPlaceholder = std::function<absl::Status(const PassContext&, const opdag::Op&, tensor::TensorView)>;

  // Every reference must outlive the runner. Errors: what Backend::Prepare says; InvalidArgument for a codec whose tensors live neither on
  // the host nor in the back end's memory.
  static absl::StatusOr<std::unique_ptr<PassRunner>> Create(const autodiff::TrainingGraph& training, const StageProgram& program, int slots,
                                                            ParameterStore& store, kernels::Backend& backend, EdgeCodec& codec,
                                                            MessagePort& port, Inbox& inbox, DeviceThrottle& throttle,
                                                            FillPlaceholder fill);

  // The messages a run waits for.
  std::vector<MessageKey> Awaited(const Pass& pass, const PassContext& context) const;
  // Runs `pass` of the program, one of program.{forward, backward, evaluate}; its messages must have arrived or Run blocks for them.
  // Errors name the op. Returns the device's seconds; 0 where they are not known yet, see TakeDeviceTimes.
  absl::StatusOr<double> Run(const Pass& pass, const PassContext& context);

  // When a device ran a pass, in nanoseconds since BeginDeviceTimes was called.
  struct DeviceTime {
    const Pass* pass;
    int micro_batch;
    int64_t begin_ns, end_ns;
  };
  // Where the back end has marks, passes are timed by the device's clock from now on.
  absl::Status BeginDeviceTimes();
  bool timed_by_device() const { return first_event_ != nullptr; }
  // Of the passes run since, in their order. Waits for them, and ends timing.
  absl::StatusOr<std::vector<DeviceTime>> TakeDeviceTimes();
  // A number as the pass run last leaves it; of the ops that own_loss keeps alive. A device's comes when the pass is done, and what
  // waits for it then waits. Errors, of waiting for it too: those that kernels found late.
  absl::StatusOr<std::unique_ptr<tensor::PendingCopy>> ScalarAfter(const Pass& pass, opdag::ValueId value, int slot) const;
  // Whether what was asked for is done when a call returns.
  bool synchronous() const { return memory_.on_host(); }
  // Blocks until all messages of the passes run so far are with the port. Errors: the first of them.
  absl::Status FinishSends();

  // After the forward pass of `slot`: says where the first value that is not finite came from, of those that the backward pass keeps; empty
  // when none is.
  std::string FirstNotFinite(int slot);

  // Runs the ops of forward and backward passes in turn, through all slots as training does, without messages. Every op of the stage
  // comes once, in ascending order; views with 0 s. Errors: kernels' and the placeholders', naming the op; Cancelled.
  absl::StatusOr<std::vector<OpTime>> Measure(const MeasureOptions& options);

  int64_t replays() const { return graph_captures_.replays(); }
  // By receiving stage.
  std::vector<int64_t> sent_bytes() const { return sends_ == nullptr ? sent_bytes_ : sends_->sent_bytes(); }

 private:
  PassRunner(const autodiff::TrainingGraph& training, const StageProgram& program, ParameterStore& store, kernels::Backend& backend,
             EdgeCodec& codec, MessagePort& port, Inbox& inbox, DeviceThrottle& throttle, FillPlaceholder fill);
  absl::Status Allocate(int slots);
  absl::Status Bind(const Pass& pass, int slots, std::vector<std::vector<BoundOp>>& bound);
  std::vector<BoundOp>& BoundOf(const Pass& pass, int slot);
  absl::Status Receive(const Pass& pass, const PassContext& context);
  // A real device's time passes by itself, and asking for it is a system call: as dear as a small op.
  int64_t CpuNow() const { return throttle_.emulate() ? ThreadCpuNanoseconds() : 0; }
  absl::Status RunOp(BoundOp& bound, const ProgramOp& op, const PassContext& context);
  absl::Status RunKernel(kernels::Kernel& kernel, const BoundOp& bound, const ProgramOp& op, const PassContext& context);
  // The op at position i, or a row of ops that begins there and ends before `end`. Returns how many ops that were, views among them.
  absl::StatusOr<size_t> RunFrom(const Pass& pass, size_t i, size_t end, const PassContext& context);
  absl::Status RunCaptureRegions(const Pass& pass, const PassContext& context);
  // Runs the ops of a pass once and appends the nanoseconds that each took to its list.
  absl::Status TimePass(const Pass& pass, const PassContext& context, bool thread_cpu, std::vector<std::vector<int64_t>>& taken);
  absl::Status SendEdges(const Pass& pass, const ProgramOp& op, const PassContext& context);
  // Without waiting for the device that encodes.
  absl::Status StartSending(const CutEdge& edge, const ProgramOp& op, const tensor::TensorView& view, const PassContext& context);
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
  DeviceThrottle& throttle_;
  const FillPlaceholder fill_;

  std::vector<std::unique_ptr<kernels::Kernel>> kernels_;  // by op id; empty for other stages' ops, placeholders and views
  tensor::MemoryBlock scratch_;
  tensor::MemoryBlock workspace_;
  std::vector<tensor::MemoryBlock> slots_;
  tensor::Buffer staging_;  // the host's, where tensors live elsewhere
  // By slot, then by position in the pass.
  std::vector<std::vector<BoundOp>> forward_;
  std::vector<std::vector<BoundOp>> backward_;
  std::vector<std::vector<BoundOp>> evaluate_;
  std::map<const Pass*, std::map<size_t, FusedRow>> fused_;
  std::map<const Pass*, std::vector<CaptureRegion>> capture_regions_;
  GraphCaptureCache graph_captures_;
  struct TimedPass {
    const Pass* pass;
    int micro_batch;
    std::unique_ptr<kernels::TimingEvent> begin, end;
  };
  std::unique_ptr<kernels::TimingEvent> first_event_;
  std::vector<TimedPass> timed_passes_;
  std::vector<int64_t> sent_bytes_;
  std::unique_ptr<SendQueue> sends_;  // where the device encodes
};

}  // namespace fusionllm::runtime
