#include <algorithm>

#include "lib/base/status_macros.h"
#include "lib/kernels/ref/reference.h"

namespace fusionllm::kernels::ref {
namespace {

absl::Status Embedding(const PreparedOp& op, const KernelArguments& arguments) {
  const int64_t count = op.in(0).elements();
  const int64_t length = op.in(0).dim(-1);
  const int64_t vocab = op.parameters[0].shape.dim(0);
  const int64_t dim = op.parameters[0].shape.dim(1);
  const auto* tokens = arguments.inputs[0].as<int32_t>();
  FUSIONLLM_RETURN_IF_ERROR(CheckRange(op, "token", tokens, count, vocab));
  const float* wte = arguments.parameters[0].f32();
  const float* wpe = op.parameters.size() > 1 ? arguments.parameters[1].f32() : nullptr;
  for (int64_t row = 0; row < count; ++row) {
    for (int64_t i = 0; i < dim; ++i) {
      arguments.outputs[0].f32()[row * dim + i] = wte[tokens[row] * dim + i] + (wpe != nullptr ? wpe[row % length * dim + i] : 0.f);
    }
  }
  return absl::OkStatus();
}

// Rows are added in token order, straight into the gradient.
absl::Status EmbeddingGrad(const PreparedOp& op, const KernelArguments& arguments) {
  const int64_t count = op.in(0).elements();
  const int64_t length = op.in(0).dim(-1);
  const int64_t vocab = op.out(0).dim(0);
  const int64_t dim = op.out(0).dim(1);
  const auto* tokens = arguments.inputs[0].as<int32_t>();
  const float* dy = arguments.inputs[1].f32();
  FUSIONLLM_RETURN_IF_ERROR(CheckRange(op, "token", tokens, count, vocab));
  for (int output = 0; output < static_cast<int>(op.outputs.size()); ++output) {
    float* gradient = OutputOrNull(arguments, output);
    if (gradient == nullptr) continue;
    if (!Accumulates(arguments, output)) std::fill_n(gradient, op.out(output).elements(), 0.f);
    for (int64_t row = 0; row < count; ++row) {
      const int64_t target = output == 0 ? tokens[row] : row % length;
      for (int64_t i = 0; i < dim; ++i) gradient[target * dim + i] += dy[row * dim + i];
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::span<const Entry> EmbeddingKernels() {
  static constexpr Entry kEntries[] = {{OpKind::kEmbedding, Embedding}, {OpKind::kEmbeddingGrad, EmbeddingGrad}};
  return kEntries;
}

}  // namespace fusionllm::kernels::ref
