// In place of cuDNN's convolutions, for tests of what is asked of them.
#pragma once

namespace fusionllm::kernels::cuda::emulated {

enum class CudnnConvolution {
  kAbsent,       // there is none: what any process begins with
  kPresent,      // gathers
  kNoAlgorithm,  // it knows no way for anything
};
void EmulateCudnn(CudnnConvolution what);

}  // namespace fusionllm::kernels::cuda::emulated
