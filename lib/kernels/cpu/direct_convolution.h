// oneDNN's convolutions behind the Kernel interface: NHWC images as they are, OIHW weights reordered to the layout oneDNN prefers in every
// run (the optimizer has changed them since the last one) and weight gradients reordered back.
//
// The batch is cut into equal chunks by shape alone; threads share the chunks, and partial weight gradients are summed in their order.
// Errors: Internal with oneDNN's message when it has no implementation.
#pragma once

#include <memory>

#include "lib/kernels/cpu/cpu.h"

namespace fusionllm::kernels::cpu {

KernelOrError MakeDirectConvolution(PreparedOp op, std::shared_ptr<WorkerPool> pool);
KernelOrError MakeDirectConvolutionGradInput(PreparedOp op, std::shared_ptr<WorkerPool> pool);
KernelOrError MakeDirectConvolutionGradWeight(PreparedOp op, std::shared_ptr<WorkerPool> pool);

}  // namespace fusionllm::kernels::cpu
