#include <utility>

#include "lib/base/status_macros.h"
#include "lib/kernels/cuda/checks.h"
#include "lib/kernels/cuda/cuda.h"
#include "lib/kernels/cuda/element.h"
#include "lib/kernels/cuda/launch.h"

namespace fusionllm::kernels::cuda {
namespace {

constexpr unsigned kMostBlocks = 65535;
constexpr int kNobody = 0x7f7f7f7f;  // as cudaMemsetAsync writes it: beyond every row

unsigned BlocksForRows(int64_t rows) { return static_cast<unsigned>(std::clamp<int64_t>(rows, 1, kMostBlocks)); }

template <typename T>
__global__ void GatherRows(const int32_t* tokens, const float* wte, const float* wpe, T* y, int64_t count, int64_t length, int64_t dim,
                           RangeCheck check) {
  for (int64_t row = blockIdx.x; row < count; row += gridDim.x) {
    const int32_t token = tokens[row];
    const bool good = token >= 0 && token < check.limit;
    if (!good && threadIdx.x == 0) InRange(check, token, row);
    for (int64_t i = threadIdx.x; i < dim; i += blockDim.x) {
      y[row * dim + i] = good ? wte[token * dim + i] + (wpe != nullptr ? wpe[row % length * dim + i] : 0.0f) : 0.0f;
    }
  }
}

// first[token]: the first row with that token.
__global__ void FindFirstRows(const int32_t* tokens, int64_t count, int* first, RangeCheck check) {
  for (int64_t row = FirstElement(); row < count; row += ElementStride()) {
    if (InRange(check, tokens[row], row)) atomicMin(&first[tokens[row]], static_cast<int>(row));
  }
}

// The block of a token's first row adds all rows of that token, in their order: no sum depends on which block is first. Rows are looked at
// a block's width at a time; those of this token are collected in shared memory, in order, and added by all threads side by side.
template <typename T>
__global__ void AddRowsOfToken(const int32_t* tokens, const T* dy, const int* first, float* gradient, int64_t count, int64_t vocab,
                               int64_t dim) {
  __shared__ int found[kThreads];
  __shared__ int found_of_warp[kThreads / 32];
  for (int64_t leader = blockIdx.x; leader < count; leader += gridDim.x) {
    const int32_t token = tokens[leader];
    if (token < 0 || token >= vocab || first[token] != leader) continue;  // the same for all threads of the block
    for (int64_t begin = leader / kThreads * kThreads; begin < count; begin += kThreads) {
      const int64_t row = begin + threadIdx.x;
      const bool mine = row >= leader && row < count && tokens[row] == token;
      const unsigned votes = __ballot_sync(0xffffffffu, mine);
      const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
      if (lane == 0) found_of_warp[warp] = __popc(votes);
      __syncthreads();
      int before = __popc(votes & ((1u << lane) - 1)), total = 0;
      for (unsigned w = 0; w < kThreads / 32; ++w) {
        if (w < warp) before += found_of_warp[w];
        total += found_of_warp[w];
      }
      if (mine) found[before] = static_cast<int>(row);
      __syncthreads();
      for (int64_t i = threadIdx.x; i < dim && total > 0; i += blockDim.x) {
        float sum = gradient[token * dim + i];
        for (int f = 0; f < total; ++f) sum += dy[found[f] * dim + i];
        gradient[token * dim + i] = sum;
      }
      __syncthreads();
    }
  }
}

template <typename T>
__global__ void AddPositions(const T* dy, float* gradient, int64_t batch, int64_t length, int64_t dim, bool accumulate) {
  const int64_t count = length * dim;
  for (int64_t i = FirstElement(); i < count; i += ElementStride()) {
    float sum = accumulate ? gradient[i] : 0.0f;
    for (int64_t b = 0; b < batch; ++b) sum += dy[b * count + i];
    gradient[i] = sum;
  }
}

class EmbeddingBase : public DeviceKernel {
 public:
  EmbeddingBase(PreparedOp op, Device& device)
      : DeviceKernel(std::move(op), device),
        count_(op_.in(0).elements()),
        length_(op_.in(0).dim(-1)),
        vocab_(op_.parameters.empty() ? op_.out(0).dim(0) : op_.parameters[0].shape.dim(0)),
        check_{device.fault(), device.AddCheck(absl::StrCat(op_.Prefix(), "token"), vocab_), vocab_} {}

 protected:
  const int64_t count_, length_, vocab_;
  const RangeCheck check_;
};

template <typename T>
class Embedding : public EmbeddingBase {
 public:
  using EmbeddingBase::EmbeddingBase;
  absl::Status Run(const KernelArguments& arguments) override {
    const float* wpe = op_.parameters.size() > 1 ? arguments.parameters[1].f32() : nullptr;
    return Launched(Launch(stream(), BlocksForRows(count_), kThreads, 0, GatherRows<T>, arguments.inputs[0].as<int32_t>(),
                           arguments.parameters[0].f32(), wpe, arguments.outputs[0].as<T>(), count_, length_,
                           op_.parameters[0].shape.dim(1), check_));
  }
};

template <typename T>
class EmbeddingGrad : public EmbeddingBase {
 public:
  using EmbeddingBase::EmbeddingBase;
  size_t workspace_bytes() const override { return sizeof(int) * static_cast<size_t>(vocab_); }

  absl::Status Run(const KernelArguments& arguments) override {
    const auto* tokens = arguments.inputs[0].as<int32_t>();
    const T* dy = arguments.inputs[1].as<T>();
    const int64_t dim = op_.out(0).dim(1);
    auto* first = reinterpret_cast<int*>(arguments.workspace.data());
    FUSIONLLM_RETURN_IF_ERROR(Launched(cudaMemsetAsync(first, kNobody & 0xff, workspace_bytes(), stream())));
    FUSIONLLM_RETURN_IF_ERROR(Launched(Launch(stream(), BlocksFor(count_), kThreads, 0, FindFirstRows, tokens, count_, first, check_)));
    if (float* gradient = OutputOrNull(arguments, 0); gradient != nullptr) {
      if (!Accumulates(arguments, 0)) {
        FUSIONLLM_RETURN_IF_ERROR(Launched(cudaMemsetAsync(gradient, 0, op_.outputs[0].bytes(), stream())));
      }
      FUSIONLLM_RETURN_IF_ERROR(Launched(Launch(stream(), BlocksForRows(count_), kThreads, 0, AddRowsOfToken<T>, tokens, dy,
                                                static_cast<const int*>(first), gradient, count_, vocab_, dim)));
    }
    float* positions = op_.outputs.size() > 1 ? OutputOrNull(arguments, 1) : nullptr;
    if (positions == nullptr) return absl::OkStatus();
    if (!Accumulates(arguments, 1)) {  // there may be more positions than the length
      FUSIONLLM_RETURN_IF_ERROR(Launched(cudaMemsetAsync(positions, 0, op_.outputs[1].bytes(), stream())));
    }
    return Launched(Launch(stream(), BlocksFor(length_ * dim), kThreads, 0, AddPositions<T>, dy, positions,
                           count_ / std::max<int64_t>(1, length_), length_, dim, Accumulates(arguments, 1)));
  }
};

}  // namespace

std::span<const Entry> EmbeddingKernels() {
  static constexpr Entry kEntries[] = {OnBothTypes<Embedding>("embedding", "-", "b"),
                                       OnBothTypes<EmbeddingGrad>("embedding_grad", "-b", "ff")};
  return kEntries;
}

}  // namespace fusionllm::kernels::cuda
