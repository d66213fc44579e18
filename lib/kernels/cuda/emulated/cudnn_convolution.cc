// In place of cuDNN: nothing, so that the gathers that stand in for it on other machines are what is tested here.
#include "lib/kernels/cuda/convolution_plan.h"

namespace fusionllm::kernels::cuda {

MadeConvolutionPlan PrepareCudnnConvolution(Device&, const ConvolutionSpec&) {
  return absl::FailedPreconditionError("the emulated card has no cuDNN");
}

}  // namespace fusionllm::kernels::cuda
