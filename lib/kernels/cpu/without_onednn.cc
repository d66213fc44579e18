// In place of onednn.cc and direct_convolution.cc where there is no oneDNN.
#include <utility>

#include "lib/kernels/cpu/direct_convolution.h"
#include "lib/kernels/cpu/gemm.h"
#include "lib/kernels/cpu/naive_gemm.h"
#include "lib/kernels/cpu/onednn.h"

namespace fusionllm::kernels::cpu {

std::string DescribeOneDnn() { return "without oneDNN, so slow in products and convolutions"; }

SingleThreadedOneDnn::SingleThreadedOneDnn() : before_(1) {}
SingleThreadedOneDnn::~SingleThreadedOneDnn() = default;

void Multiply(const Gemm& gemm) { NaiveGemm(gemm); }

KernelOrError MakeDirectConvolution(PreparedOp op, std::shared_ptr<WorkerPool> pool) {
  return MakeReference(std::move(op), std::move(pool));
}
KernelOrError MakeDirectConvolutionGradInput(PreparedOp op, std::shared_ptr<WorkerPool> pool) {
  return MakeReference(std::move(op), std::move(pool));
}
KernelOrError MakeDirectConvolutionGradWeight(PreparedOp op, std::shared_ptr<WorkerPool> pool) {
  return MakeReference(std::move(op), std::move(pool));
}

}  // namespace fusionllm::kernels::cpu
