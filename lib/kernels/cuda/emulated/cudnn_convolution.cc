#include "lib/kernels/cuda/emulated/cudnn_convolution.h"

#include <atomic>

#include "lib/kernels/cuda/convolution_plan.h"

namespace fusionllm::kernels::cuda {
namespace emulated {
namespace {

std::atomic<CudnnConvolution> convolution_state = CudnnConvolution::kAbsent;

}  // namespace

void EmulateCudnn(CudnnConvolution what) { convolution_state = what; }

}  // namespace emulated

ConvolutionPlanOrError PrepareCudnnConvolution(Device& device, const ConvolutionSpec& spec) {
  switch (emulated::convolution_state) {
    case emulated::CudnnConvolution::kAbsent:
      return absl::FailedPreconditionError("the emulated card has no cuDNN");
    case emulated::CudnnConvolution::kPresent:
      return PrepareDirectConvolution(device, spec);
    case emulated::CudnnConvolution::kNoAlgorithm:
      break;
  }
  return absl::UnimplementedError("the stand-in knows no way");
}

}  // namespace fusionllm::kernels::cuda
