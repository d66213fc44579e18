#include <algorithm>
#include <cstring>

#include "lib/base/status_macros.h"
#include "lib/kernels/cpu/cpu.h"
#include "lib/kernels/cpu/vector/spans.h"

namespace fusionllm::kernels::cpu {
namespace {

class Embedding : public PooledKernel {
 public:
  using PooledKernel::PooledKernel;
  absl::Status Run(const KernelArguments& arguments) override {
    constexpr int64_t kRows = 64;
    const int64_t count = op_.in(0).elements();
    const int64_t length = op_.in(0).dim(-1);
    const int64_t dim = op_.parameters[0].shape.dim(1);
    const auto* tokens = arguments.inputs[0].as<int32_t>();
    FUSIONLLM_RETURN_IF_ERROR(CheckRange(op_, "token", tokens, count, op_.parameters[0].shape.dim(0)));
    const float* wte = arguments.parameters[0].f32();
    const float* wpe = op_.parameters.size() > 1 ? arguments.parameters[1].f32() : nullptr;
    float* y = arguments.outputs[0].f32();
    pool_->Run(ChunkCount(count, kRows), [&](int64_t chunk, int) {
      for (int64_t row = chunk * kRows; row < std::min(count, (chunk + 1) * kRows); ++row) {
        const float* token = wte + tokens[row] * dim;
        if (wpe == nullptr) {
          std::memcpy(y + row * dim, token, sizeof(float) * dim);
        } else {
          Apply(BinaryFunction::kAdd, token, wpe + row % length * dim, y + row * dim, dim);
        }
      }
    });
    return absl::OkStatus();
  }
};

// Threads share the columns, so that every element still receives its rows in token order.
class EmbeddingGrad : public PooledKernel {
 public:
  using PooledKernel::PooledKernel;
  absl::Status Run(const KernelArguments& arguments) override {
    constexpr int64_t kColumns = 128;
    const int64_t count = op_.in(0).elements();
    const int64_t length = op_.in(0).dim(-1);
    const int64_t dim = op_.out(0).dim(1);
    const auto* tokens = arguments.inputs[0].as<int32_t>();
    const float* dy = arguments.inputs[1].f32();
    FUSIONLLM_RETURN_IF_ERROR(CheckRange(op_, "token", tokens, count, op_.out(0).dim(0)));
    for (int output = 0; output < static_cast<int>(op_.outputs.size()); ++output) {
      float* gradient = OutputOrNull(arguments, output);
      if (gradient == nullptr) continue;
      const bool accumulate = Accumulates(arguments, output);
      pool_->Run(ChunkCount(dim, kColumns), [&](int64_t chunk, int) {
        const int64_t first = chunk * kColumns;
        const int64_t width = std::min(kColumns, dim - first);
        for (int64_t row = 0; !accumulate && row < op_.out(output).dim(0); ++row) std::fill_n(gradient + row * dim + first, width, 0.f);
        for (int64_t row = 0; row < count; ++row) {
          const int64_t target = output == 0 ? tokens[row] : row % length;
          AddTo(dy + row * dim + first, gradient + target * dim + first, width);
        }
      });
    }
    return absl::OkStatus();
  }
};

}  // namespace

std::span<const Entry> EmbeddingKernels() {
  static constexpr Entry kEntries[] = {{OpKind::kEmbedding, Make<Embedding>}, {OpKind::kEmbeddingGrad, Make<EmbeddingGrad>}};
  return kEntries;
}

}  // namespace fusionllm::kernels::cpu
