// PrepareCudnnConvolution (convolution_plan.h).
#include <algorithm>
#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/mutex.h"
#include "lib/base/status_macros.h"
#include "lib/kernels/cuda/convolution_plan.h"
#include "lib/kernels/cuda/cudnn_algorithms.h"
#include "lib/kernels/cuda/cudnn_handle.h"
#include "lib/kernels/cuda/measure.h"
#include "lib/tensor/memory.h"

namespace fusionllm::kernels::cuda {
namespace {

constexpr size_t kMaxMeasured = 8;

class CudnnConvolution final : public ConvolutionPlan {
 public:
  CudnnConvolution(const CudnnHandle& cudnn, CudnnAlgorithm algorithm) : cudnn_(cudnn), algorithm_(std::move(algorithm)) {}

  size_t workspace_bytes() const override { return CudnnWorkspaceBytes(algorithm_.workspace_bytes); }

  absl::Status Run(const void* first, const void* second, void* result, void* workspace) const override {
    const CudnnLibrary& library = cudnn_.library;
    FUSIONLLM_ASSIGN_OR_RETURN(const CudnnDescriptor data, DataOf(library, first, second, result, CudnnWorkspace(workspace)));
    return ToStatus(library, library.execute(cudnn_.handle, algorithm_.plan->get(), data.get()), "starting a convolution");
  }

 private:
  const CudnnHandle& cudnn_;
  const CudnnAlgorithm algorithm_;
};

absl::StatusOr<CudnnAlgorithm> Fastest(const CudnnHandle& cudnn, Device& device, const ConvolutionSpec& spec,
                                       const std::vector<CudnnAlgorithm>& algorithms) {
  const ConvolutionShape& s = spec.shape;
  std::vector<CudnnConvolution> plans;
  size_t workspace_bytes = 0;
  for (const CudnnAlgorithm& algorithm : algorithms) {
    workspace_bytes = std::max(workspace_bytes, plans.emplace_back(cudnn, algorithm).workspace_bytes());
  }
  const auto take = [&](int64_t elements) { return AllocateZeroed(device, tensor::SizeOf(spec.dtype()) * static_cast<size_t>(elements)); };
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

absl::StatusOr<CudnnAlgorithm> Choose(const CudnnHandle& cudnn, Device& device, const ConvolutionSpec& spec) {
  const bool measure = device.algorithm_choice() == AlgorithmChoice::kMeasured;
  FUSIONLLM_ASSIGN_OR_RETURN(std::vector<CudnnAlgorithm> algorithms,
                             AlgorithmsFor(cudnn.library, {.handle = cudnn.handle}, spec, measure ? kMaxMeasured : 1));
  if (algorithms.size() == 1) return std::move(algorithms[0]);
  absl::StatusOr<CudnnAlgorithm> fastest = Fastest(cudnn, device, spec, algorithms);
  if (fastest.ok()) return fastest;
  // For lack of memory, mostly: no reason not to train.
  base::Log(base::LogLevel::kWarning,
            absl::StrCat("measuring ", spec.ToString(), " failed; taking the first that cuDNN names: ", fastest.status().message()));
  return std::move(algorithms[0]);
}

// Chosen once in the process for a spec, a card and a way of choosing, for all callers: ops of one shape share it. Answers that there is no
// way are kept as well, and no other errors.
absl::StatusOr<CudnnAlgorithm> ChosenFor(const CudnnHandle& cudnn, Device& device, const ConvolutionSpec& spec) {
  static base::Mutex mutex;
  using Key = std::tuple<int, AlgorithmChoice, ConvolutionSpec>;
  static auto* const chosen ABSL_PT_GUARDED_BY(mutex) = new std::map<Key, absl::StatusOr<CudnnAlgorithm>>;
  const base::MutexLock lock(mutex);
  const Key key(device.info().index, device.algorithm_choice(), spec);
  if (const auto found = chosen->find(key); found != chosen->end()) return found->second;
  absl::StatusOr<CudnnAlgorithm> algorithm = Choose(cudnn, device, spec);
  if (algorithm.ok() || absl::IsUnimplemented(algorithm.status())) chosen->emplace(key, algorithm);
  return algorithm;
}

}  // namespace

ConvolutionPlanOrError PrepareCudnnConvolution(Device& device, const ConvolutionSpec& spec) {
  FUSIONLLM_ASSIGN_OR_RETURN(const CudnnHandle* const cudnn, CudnnOf(device));
  FUSIONLLM_ASSIGN_OR_RETURN(CudnnAlgorithm algorithm, ChosenFor(*cudnn, device, spec));
  return std::make_unique<CudnnConvolution>(*cudnn, std::move(algorithm));
}

}  // namespace fusionllm::kernels::cuda
