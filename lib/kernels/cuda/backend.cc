#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lib/base/status_macros.h"
#include "lib/kernels/cuda/bf16.h"
#include "lib/kernels/cuda/cuda.h"
#include "lib/kernels/cuda/graph_capture.h"
#include "lib/kernels/upcast_kernel.h"

namespace fusionllm::kernels::cuda {
namespace {

const std::map<opdag::OpKind, Entry>& Entries() {
  static const auto* const entries = [] {
    auto* all = new std::map<opdag::OpKind, Entry>;
    for (const auto family :
         {AttentionKernels(), BatchNormKernels(), ConvolutionKernels(), ElementwiseKernels(), EmbeddingKernels(), LayerNormKernels(),
          LinearKernels(), LossKernels(), MovementKernels(), PoolingKernels(), ReductionKernels(), SoftmaxKernels()}) {
      for (const Entry& entry : family) all->emplace(entry.kind, entry);
    }
    return all;
  }();
  return *entries;
}

// Null where no kernel is for the op types of a row (FusedOp, PreparedFusedOp).
template <typename Row>
const FusedEntry* FusionOf(const Row& row) {
  std::array<OpKind, kMaxFusedOps> kinds = {};
  if (row.size() > kinds.size()) return nullptr;
  std::transform(row.begin(), row.end(), kinds.begin(), [](const auto& link) { return link.op.kind; });
  for (const auto family : {BatchNormFusions(), ElementwiseFusions(), LayerNormFusions(), LinearFusions()}) {
    for (const FusedEntry& entry : family) {
      if (entry.kinds == kinds) return &entry;
    }
  }
  return nullptr;
}

bool Fits(tensor::DType type, char type_code) {
  const bool f32 = type == tensor::DType::kF32, bf16 = type == tensor::DType::kBF16;
  switch (type_code) {
    case 'b':
      return bf16;
    case 'f':
      return f32;
    case 'e':
      return f32 || bf16;
    default:
      return f32 || !tensor::IsFloating(type);
  }
}

bool Fit(const std::vector<tensor::TensorType>& types, absl::string_view type_codes) {
  if (types.size() > type_codes.size()) return false;
  for (size_t i = 0; i < types.size(); ++i) {
    if (!Fits(types[i].dtype, type_codes[i])) return false;
  }
  return true;
}

class DeviceBf16Conversion final : public Bf16Conversion {
 public:
  explicit DeviceBf16Conversion(Device& device) : device_(device) {}
  absl::Status Upcast(const uint16_t* from, float* to, int64_t count) const override {
    return Started(UpcastBf16(device_.stream(), from, to, count));
  }
  absl::Status Round(const float* from, uint16_t* to, int64_t count) const override {
    return Started(RoundToBf16(device_.stream(), from, to, count));
  }
  absl::Status RoundFloats(const float* from, float* to, int64_t count) const override {
    return Started(RoundFloatsToBf16(device_.stream(), from, to, count));
  }

 private:
  static absl::Status Started(cudaError_t error) { return ToStatus(error, "converting a tensor between bf16 and f32"); }
  Device& device_;
};

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(std::unique_ptr<Device> device) : device_(std::move(device)), optimizer_(MakeOptimizer(*device_)) {}

  absl::string_view name() const override { return "cuda"; }
  std::string Describe() const override { return absl::StrCat("cuda:", device_->info().index, ": ", device_->info().ToString()); }
  bool Supports(opdag::OpKind kind) const override { return Entries().contains(kind); }
  absl::StatusOr<std::unique_ptr<Kernel>> Prepare(const opdag::Graph& graph, const opdag::Op& op) override {
    FUSIONLLM_ASSIGN_OR_RETURN(PreparedOp prepared, PrepareOp(graph, op));
    return MakeKernel(std::move(prepared), *device_);
  }
  absl::StatusOr<std::unique_ptr<Kernel>> PrepareFused(const opdag::Graph& graph, std::span<const FusedOp> row) override {
    if (FusionOf(row) == nullptr) return nullptr;
    FUSIONLLM_ASSIGN_OR_RETURN(PreparedFusedOps prepared, PrepareFusedOps(graph, row));
    return MakeFusedKernel(std::move(prepared), *device_);
  }
  tensor::Memory& memory() override { return device_->memory(); }
  OptimizerKernels& optimizer() override { return *optimizer_; }
  absl::Status Synchronize() override { return device_->Synchronize(); }
  absl::StatusOr<std::optional<int64_t>> FreeMemoryBytes() override {
    FUSIONLLM_ASSIGN_OR_RETURN(const size_t bytes, device_->FreeBytes());
    return static_cast<int64_t>(bytes);
  }
  absl::StatusOr<std::unique_ptr<TimingEvent>> RecordEvent() override { return RecordTimingEvent(*device_); }
  absl::StatusOr<std::unique_ptr<CapturedGraph>> CaptureGraph(absl::FunctionRef<absl::Status()> run) override {
    return CaptureStream(*device_, run);
  }
  Device& device() { return *device_; }

 private:
  const std::unique_ptr<Device> device_;
  const std::unique_ptr<OptimizerKernels> optimizer_;
};

}  // namespace

KernelOrError MakeKernel(PreparedOp op, Device& device) {
  const auto found = Entries().find(op.kind);
  if (found == Entries().end()) {
    return absl::UnimplementedError(absl::StrCat(op.Prefix(), "back end 'cuda' has no kernel for this op type"));
  }
  const Entry& entry = found->second;
  if (NeedsUpcast(op)) {
    const bool native = entry.bf16.make != nullptr && Fit(op.inputs, entry.bf16.inputs) && Fit(op.outputs, entry.bf16.outputs);
    if (native) return entry.bf16.make(std::move(op), device);
    return MakeUpcastKernel(
        op, [&device](PreparedOp in_f32) { return MakeKernel(std::move(in_f32), device); }, std::make_shared<DeviceBf16Conversion>(device));
  }
  FUSIONLLM_RETURN_IF_ERROR(CheckComputesInF32(op));
  return entry.make(std::move(op), device);
}

KernelOrError MakeFusedKernel(PreparedFusedOps row, Device& device) {
  const FusedEntry* const entry = FusionOf(row);
  if (entry == nullptr) return nullptr;
  return entry->make(std::move(row), device);
}

bool OfOneType(const PreparedOp& op, int inputs, const PreparedOp& elementwise) {
  const tensor::TensorType& type = elementwise.outputs[0];
  const auto is_of_it = [&](const tensor::TensorType& other) { return other == type; };
  return (type.dtype == tensor::DType::kF32 || type.dtype == tensor::DType::kBF16) && type.elements() > 0 && is_of_it(op.outputs[0]) &&
         std::all_of(elementwise.inputs.begin(), elementwise.inputs.end(), is_of_it) &&
         std::all_of(op.inputs.begin(), op.inputs.begin() + inputs, is_of_it);
}

absl::StatusOr<std::unique_ptr<Backend>> CreateCudaBackend(int index, AlgorithmChoice choice) {
  FUSIONLLM_ASSIGN_OR_RETURN(std::unique_ptr<Device> device, Device::Open(index));
  device->set_algorithm_choice(choice);
  return std::make_unique<CudaBackend>(std::move(device));
}

Device* DeviceOf(Backend& backend) {
  auto* const cuda = dynamic_cast<CudaBackend*>(&backend);
  return cuda == nullptr ? nullptr : &cuda->device();
}

}  // namespace fusionllm::kernels::cuda
