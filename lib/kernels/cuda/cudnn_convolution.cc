// PrepareCudnnConvolution (convolution_plan.h).
#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/kernels/cuda/convolution_plan.h"
#include "lib/kernels/cuda/cudnn_algorithms.h"
#include "lib/kernels/cuda/measure.h"
#include "lib/tensor/memory.h"

namespace fusionllm::kernels::cuda {
namespace {

constexpr size_t kMostMeasured = 8;
// What the library takes for granted of workspaces is not said; this is what its own examples have.
constexpr size_t kWorkspaceAlignment = 256;

// The library with a handle whose stream is the device's: one for each Device, so that one stage's work never leads into another's stream.
struct Cudnn {
  const CudnnLibrary& library;
  cudnnHandle_t handle = nullptr;
};

// Handles that no Device has now. They are never closed: plans that are kept for the process were made with them.
class FreeHandles {
 public:
  absl::StatusOr<cudnnHandle_t> Take(const CudnnLibrary& library) {
    {
      const std::lock_guard lock(mutex_);
      if (!handles_.empty()) {
        const cudnnHandle_t handle = handles_.back();
        handles_.pop_back();
        return handle;
      }
    }
    cudnnHandle_t handle = nullptr;
    FUSIONLLM_RETURN_IF_ERROR(ToStatus(library, library.create(&handle), "opening cuDNN"));
    return handle;
  }
  void Give(cudnnHandle_t handle) {
    const std::lock_guard lock(mutex_);
    handles_.push_back(handle);
  }

 private:
  std::mutex mutex_;
  std::vector<cudnnHandle_t> handles_;
};

// Errors: FailedPrecondition, naming the library, where it cannot be loaded.
absl::StatusOr<const Cudnn*> CudnnOf(Device& device) {
  static auto* const free = new FreeHandles;
  std::shared_ptr<void>& kept = device.Kept("cudnn");
  if (kept == nullptr) {
    if (!LoadedCudnn().ok()) return LoadedCudnn().status();
    const CudnnLibrary& library = *LoadedCudnn();
    FUSIONLLM_ASSIGN_OR_RETURN(const cudnnHandle_t handle, free->Take(library));
    std::shared_ptr<Cudnn> cudnn(new Cudnn{library, handle}, [](Cudnn* gone) {
      free->Give(gone->handle);
      delete gone;
    });
    FUSIONLLM_RETURN_IF_ERROR(ToStatus(library, library.set_stream(handle, device.stream()), "giving cuDNN a stream"));
    kept = std::move(cudnn);
  }
  return static_cast<const Cudnn*>(kept.get());
}

class CudnnConvolution final : public ConvolutionPlan {
 public:
  CudnnConvolution(const Cudnn& cudnn, CudnnAlgorithm algorithm) : cudnn_(cudnn), algorithm_(std::move(algorithm)) {}

  size_t workspace_bytes() const override {
    return algorithm_.workspace_bytes == 0 ? 0 : static_cast<size_t>(algorithm_.workspace_bytes) + kWorkspaceAlignment;
  }

  absl::Status Run(const void* first, const void* second, void* result, void* workspace) const override {
    const CudnnLibrary& library = cudnn_.library;
    const auto begin = (reinterpret_cast<uintptr_t>(workspace) + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
    FUSIONLLM_ASSIGN_OR_RETURN(const CudnnDescriptor data, DataOf(library, first, second, result, reinterpret_cast<void*>(begin)));
    return ToStatus(library, library.execute(cudnn_.handle, algorithm_.plan->get(), data.get()), "starting a convolution");
  }

 private:
  const Cudnn& cudnn_;
  const CudnnAlgorithm algorithm_;
};

absl::StatusOr<CudnnAlgorithm> Fastest(const Cudnn& cudnn, Device& device, const ConvolutionSpec& spec,
                                       const std::vector<CudnnAlgorithm>& algorithms) {
  const ConvolutionShape& s = spec.shape;
  std::vector<CudnnConvolution> plans;
  size_t workspace_bytes = 0;
  for (const CudnnAlgorithm& algorithm : algorithms) {
    workspace_bytes = std::max(workspace_bytes, plans.emplace_back(cudnn, algorithm).workspace_bytes());
  }
  const auto take = [&](int64_t elements) -> absl::StatusOr<tensor::MemoryBlock> {
    FUSIONLLM_ASSIGN_OR_RETURN(tensor::MemoryBlock block, device.memory().Allocate(tensor::SizeOf(spec.dtype()) * elements));
    FUSIONLLM_RETURN_IF_ERROR(device.memory().Zero(block.data(), block.size()));
    return block;
  };
  FUSIONLLM_ASSIGN_OR_RETURN(const tensor::MemoryBlock x, take(s.inputs()));
  FUSIONLLM_ASSIGN_OR_RETURN(const tensor::MemoryBlock weight, take(s.weights()));
  FUSIONLLM_ASSIGN_OR_RETURN(const tensor::MemoryBlock y, take(s.outputs()));
  FUSIONLLM_ASSIGN_OR_RETURN(const tensor::MemoryBlock workspace, device.memory().Allocate(workspace_bytes));
  const bool forward = spec.pass == ConvolutionPass::kForward, grad_input = spec.pass == ConvolutionPass::kGradInput;
  std::byte* const first = grad_input ? y.data() : x.data();
  std::byte* const second = spec.pass == ConvolutionPass::kGradWeight ? y.data() : weight.data();
  std::byte* const result = forward ? y.data() : grad_input ? x.data() : weight.data();
  FUSIONLLM_ASSIGN_OR_RETURN(const size_t fastest, FastestOf(device, plans.size(), [&](size_t i) {
                               return plans[i].Run(first, second, result, workspace.data());
                             }));
  return algorithms[fastest];
}

absl::StatusOr<CudnnAlgorithm> Choose(const Cudnn& cudnn, Device& device, const ConvolutionSpec& spec) {
  const bool measure = device.algorithm_choice() == AlgorithmChoice::kMeasured;
  FUSIONLLM_ASSIGN_OR_RETURN(std::vector<CudnnAlgorithm> algorithms,
                             AlgorithmsFor(cudnn.library, {.handle = cudnn.handle}, spec, measure ? kMostMeasured : 1));
  if (algorithms.size() == 1) return std::move(algorithms[0]);
  absl::StatusOr<CudnnAlgorithm> fastest = Fastest(cudnn, device, spec, algorithms);
  if (fastest.ok()) return fastest;
  // For lack of memory, mostly: no reason not to train.
  base::Log(base::LogLevel::kWarning,
            absl::StrCat("measuring ", spec.ToString(), " failed; taking the first that cuDNN names: ", fastest.status().message()));
  return std::move(algorithms[0]);
}

// Chosen once in the process for a spec and a way of choosing, whoever asks: ops of one shape share it. Answers that there is no way are
// kept as well.
absl::StatusOr<CudnnAlgorithm> ChosenFor(const Cudnn& cudnn, Device& device, const ConvolutionSpec& spec) {
  static std::mutex mutex;
  static auto* const chosen = new std::map<std::pair<AlgorithmChoice, ConvolutionSpec>, absl::StatusOr<CudnnAlgorithm>>;
  const std::lock_guard lock(mutex);
  const std::pair key(device.algorithm_choice(), spec);
  const auto found = chosen->find(key);
  return found != chosen->end() ? found->second : chosen->emplace(key, Choose(cudnn, device, spec)).first->second;
}

}  // namespace

MadeConvolutionPlan PrepareCudnnConvolution(Device& device, const ConvolutionSpec& spec) {
  FUSIONLLM_ASSIGN_OR_RETURN(const Cudnn* const cudnn, CudnnOf(device));
  FUSIONLLM_ASSIGN_OR_RETURN(CudnnAlgorithm algorithm, ChosenFor(*cudnn, device, spec));
  return std::make_unique<CudnnConvolution>(*cudnn, std::move(algorithm));
}

}  // namespace fusionllm::kernels::cuda
