// Op implementations behind one interface; a back end (ref, cpu, cuda) is chosen at run time by name.
//
// A back end has the same file set as its siblings: lib/kernels/<backend>/{attention,convolution,elementwise,embedding,linear,loss,
// movement,normalization,pooling,reduction}.cc, plus backend.cc that lists them, so a reader finds an op's kernel by its family; of cuda
// they are .cu files, and norms are in two, layer_norm and batch_norm.
//
// Determinism: unless BackendOptions say otherwise the same inputs give the same bits in every call, whatever the number of threads and the
// other work of the machine: work is split into chunks that depend on shapes alone, and sums over chunks run in chunk order. A Kernel is
// prepared once for one op with fixed types and run many times, from one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/kernels/optimizer.h"
#include "lib/opdag/graph.h"
#include "lib/tensor/memory.h"
#include "lib/tensor/tensor.h"

namespace fusionllm::kernels {

enum class Mode {
  kTrain,      // batch norm uses and updates statistics, dropout drops
  kRecompute,  // as kTrain, but updates no state
  kEvaluate,   // batch norm uses running statistics, dropout is the identity
};

// What a stochastic kernel may depend on besides its inputs.
struct RandomContext {
  uint64_t seed = 0;
  int64_t step = 0;
  int64_t first_sample = 0;  // index of the micro-batch's first sample in the global batch
};

// All addresses are of the back end's memory.
struct KernelArguments {
  std::span<const tensor::ConstTensorView> inputs;  // as op.inputs
  std::span<const tensor::TensorView> parameters;   // as op.parameters; written only by batch_norm in kTrain
  // As op.outputs. An output that is not read may have data == nullptr: the kernel then need not compute it (first outputs are always
  // given, except dx of a *_grad op whose parameter gradients alone are wanted).
  std::span<const tensor::TensorView> outputs;
  // Parallel to outputs (or empty: all false): add to what is there instead of overwriting it. Set only for parameter gradients.
  std::span<const bool> accumulate;
  Mode mode = Mode::kTrain;
  RandomContext random;
  std::span<std::byte> workspace;  // at least Kernel::workspace_bytes(), aligned to 64; contents undefined before and after
};

class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual size_t workspace_bytes() const { return 0; }
  // Whether what it asks a device for depends on KernelArguments::random in this mode, so that no CapturedGraph of it can be used again.
  virtual bool IsRandom(Mode mode) const { return false; }
  // True when output `index` may share memory with input `input` (elementwise ops).
  virtual bool CanRunInPlace(int output, int input) const { return false; }
  // Errors: InvalidArgument for data out of range (a token id beyond the vocabulary, a label beyond the classes), naming the position. A
  // device finds these late: Backend::Synchronize or the next copy to the host has them then.
  virtual absl::Status Run(const KernelArguments& arguments) = 0;
};

// A point in the order of a device's kernels, which tells how long those since another one took.
class TimingEvent {
 public:
  virtual ~TimingEvent() = default;
  // Seconds of the device from `earlier`, of the same back end, to here. Waits for it.
  virtual absl::StatusOr<double> SecondsSince(const TimingEvent& earlier) const = 0;
};

// Kernels with their arguments, asked for in one call.
class CapturedGraph {
 public:
  virtual ~CapturedGraph() = default;
  virtual absl::Status Replay() = 0;
};

struct BackendOptions {
  int threads = 1;  // >= 1
  // On a device: the same bits in every run and on any number of stages, on one kind of card. Else what is fastest by measurement, where
  // choices may differ from process to process, and what may be fused may depend on where a model is cut.
  bool deterministic = true;
};

inline constexpr size_t kMaxFusedOps = 3;

// An op of a row that one kernel may run.
struct FusedOp {
  opdag::Op op;
  bool keeps_output = true;  // output 0 is read by others than the next op of the row, or there is no next
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual absl::string_view name() const = 0;
  // One line for logs: library, version, instruction set chosen.
  virtual std::string Describe() const = 0;
  virtual bool Supports(opdag::OpKind kind) const = 0;
  // Prepares a kernel for one op of a typed graph. What bf16 tensors mean is said in upcast_kernel.h. Errors: Unimplemented naming op type
  // and back end, or a dtype that the back end does not compute in.
  virtual absl::StatusOr<std::unique_ptr<Kernel>> Prepare(const opdag::Graph& graph, const opdag::Op& op) = 0;

  // One kernel for a row of 2 to kMaxFusedOps ops, each of which runs right after the one before and reads that one's output 0, once, and
  // nothing else that the row makes; null where it has none. Its arguments are those of all, in the row's order: inputs (among them what
  // one hands on to the next, which need hold nothing), parameters, outputs, accumulate; indices of CanRunInPlace count so, too. Every
  // output has the bits that a kernel for each would give it, on a back end that is to give the same bits wherever a model is cut. Output 0
  // of an op without `keeps_output` is null. Errors: Prepare's.
  virtual absl::StatusOr<std::unique_ptr<Kernel>> PrepareFused(const opdag::Graph& graph, std::span<const FusedOp> row) { return nullptr; }

  // Where the tensors of its kernels live. The backend must outlive what is allocated there.
  virtual tensor::Memory& memory() { return tensor::HostMemory(); }
  virtual OptimizerKernels& optimizer() { return HostOptimizerKernels(); }
  // Waits for all that was asked for; a back end on the host has nothing to wait for. Errors: those that kernels found since the last call.
  virtual absl::Status Synchronize() { return absl::OkStatus(); }

  // Bytes that tensors could still take of a device's own memory, as it is now: without what driver, libraries, other tensors and other
  // processes have. Nothing where tensors are in the host's. Errors: the device's.
  virtual absl::StatusOr<std::optional<int64_t>> FreeMemoryBytes() { return std::nullopt; }

  // Null where work is done when the call that asks for it returns.
  virtual absl::StatusOr<std::unique_ptr<TimingEvent>> RecordEvent() { return nullptr; }
  // What `run` asks kernels for, which is not carried out now but with each Replay: with the same arguments, on what is in their memory
  // then. `run` may call nothing but kernels that have run before. Null where that would save nothing, without calling `run`. The back end
  // must outlive it. Errors: Unimplemented where it asked for what cannot be recorded, or failed: when it is run as it is, it tells why.
  virtual absl::StatusOr<std::unique_ptr<CapturedGraph>> CaptureGraph(absl::FunctionRef<absl::Status()> run) { return nullptr; }
};

// "ref", "cpu", or "cuda:N" (devices.h). Errors: ChooseDevice's for a card; NotFound naming the choices; InvalidArgument for a number of
// threads that cannot be; ResourceExhausted when the system does not start that many.
absl::StatusOr<std::unique_ptr<Backend>> CreateBackend(absl::string_view name, const BackendOptions& options);
// Those that every build and machine has.
std::vector<absl::string_view> BackendNames();

}  // namespace fusionllm::kernels
