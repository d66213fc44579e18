// What card the emulated one says it is.
#pragma once

namespace fusionllm::kernels::cuda::emulated {

// Of compute capability MAJOR.0, which is 9 in any process at first: that is what those see who open the device from then on.
void SetMajorCapability(int major);

}  // namespace fusionllm::kernels::cuda::emulated
