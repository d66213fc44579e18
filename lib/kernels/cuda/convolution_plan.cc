#include "lib/kernels/cuda/convolution_plan.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/base/log_once.h"

namespace fusionllm::kernels::cuda {
namespace {

absl::string_view NameOf(ConvolutionPass pass) {
  switch (pass) {
    case ConvolutionPass::kForward:
      return "a convolution";
    case ConvolutionPass::kGradInput:
      return "the gradient of the input of a convolution";
    case ConvolutionPass::kGradWeight:
      return "the gradient of the weights of a convolution";
  }
  return "";
}

}  // namespace

std::string ConvolutionSpec::ToString() const {
  const ConvolutionShape& s = shape;
  return absl::StrFormat(
      "%s of [%d, %d, %d, %d] to [%d, %d, %d, %d] by %dx%d (stride %dx%d, padding %dx%d, dilation %dx%d, groups %d) in %s", NameOf(pass),
      s.batch, s.in_height, s.in_width, s.in_channels, s.batch, s.out_height, s.out_width, s.out_channels, s.kernel[0], s.kernel[1],
      s.stride[0], s.stride[1], s.padding[0], s.padding[1], s.dilation[0], s.dilation[1], s.groups, tensor::Name(dtype()));
}

ConvolutionPlanOrError PrepareConvolution(Device& device, const ConvolutionSpec& spec) {
  ConvolutionPlanOrError plan = PrepareCudnnConvolution(device, spec);
  const absl::StatusCode code = plan.status().code();
  if (code != absl::StatusCode::kFailedPrecondition && code != absl::StatusCode::kUnimplemented) return plan;
  // Every op of a kind, pass and stage would say it again.
  base::LogOnce(base::LogLevel::kWarning, absl::StrCat(plan.status().message(), "; computing by plain gathers, which are right and slow"));
  return PrepareDirectConvolution(device, spec);
}

}  // namespace fusionllm::kernels::cuda
