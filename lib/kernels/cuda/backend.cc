#include <map>
#include <string>
#include <utility>

#include "lib/base/status_macros.h"
#include "lib/kernels/cuda/cuda.h"

namespace fusionllm::kernels::cuda {
namespace {

const std::map<std::string, Factory>& Factories() {
  static const auto* const factories = [] {
    auto* all = new std::map<std::string, Factory>;
    for (const auto family : {AttentionKernels(), ConvolutionKernels(), ElementwiseKernels(), EmbeddingKernels(), LinearKernels(),
                              LossKernels(), MovementKernels(), NormalizationKernels(), PoolingKernels(), ReductionKernels()}) {
      for (const Entry& entry : family) all->emplace(std::string(entry.type), entry.make);
    }
    return all;
  }();
  return *factories;
}

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(std::unique_ptr<Device> device) : device_(std::move(device)), optimizer_(MakeOptimizer(*device_)) {}

  absl::string_view name() const override { return "cuda"; }
  std::string Describe() const override { return absl::StrCat("cuda:", device_->info().index, ": ", device_->info().ToString()); }
  bool Supports(absl::string_view op_type) const override { return Factories().contains(std::string(op_type)); }
  absl::StatusOr<std::unique_ptr<Kernel>> Prepare(const opdag::Graph& graph, const opdag::Op& op) override {
    FUSIONLLM_ASSIGN_OR_RETURN(PreparedOp prepared, PrepareOp(graph, op));
    return MakeKernel(std::move(prepared), *device_);
  }
  tensor::Memory& memory() override { return device_->memory(); }
  OptimizerKernels& optimizer() override { return *optimizer_; }
  absl::Status Finish() override { return device_->Finish(); }
  Device& device() { return *device_; }

 private:
  const std::unique_ptr<Device> device_;
  const std::unique_ptr<OptimizerKernels> optimizer_;
};

}  // namespace

MadeKernel MakeKernel(PreparedOp op, Device& device) {
  const auto found = Factories().find(op.type);
  if (found == Factories().end()) {
    return absl::UnimplementedError(absl::StrCat(op.Prefix(), "back end 'cuda' has no kernel for this op type"));
  }
  FUSIONLLM_RETURN_IF_ERROR(CheckComputesInF32(op));
  return found->second(std::move(op), device);
}

absl::StatusOr<std::unique_ptr<Backend>> CreateCudaBackend(int index) {
  FUSIONLLM_ASSIGN_OR_RETURN(std::unique_ptr<Device> device, Device::Open(index));
  return std::make_unique<CudaBackend>(std::move(device));
}

Device* DeviceOf(Backend& backend) {
  auto* const cuda = dynamic_cast<CudaBackend*>(&backend);
  return cuda == nullptr ? nullptr : &cuda->device();
}

}  // namespace fusionllm::kernels::cuda
