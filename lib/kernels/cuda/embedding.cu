#include <bit>
#include <utility>

#include "lib/base/status_macros.h"
#include "lib/kernels/cuda/checks.h"
#include "lib/kernels/cuda/cuda.h"
#include "lib/kernels/cuda/element.h"
#include "lib/kernels/cuda/launch.h"
#include "lib/kernels/cuda/sort.h"

namespace fusionllm::kernels::cuda {
namespace {

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

// ---- Gradient of the table
// ----------------------------------------------------------------------------------------------------------------
//
// Rows are sorted by token, those of one token in their order, and added up in that order: first in pieces that end at every kPiece-th
// place of the sorted rows, then, of tokens that have several pieces, the pieces. So a token that is everywhere is no work for one block,
// and no sum depends on which block is first.
constexpr int64_t kPiece = 64;

// What rows are sorted by; tokens out of range come last, as `vocab`.
__global__ void KeysOfRows(const int32_t* tokens, int64_t count, uint32_t* keys, int32_t* rows, RangeCheck check) {
  for (int64_t row = FirstElement(); row < count; row += ElementStride()) {
    keys[row] = static_cast<uint32_t>(InRange(check, tokens[row], row) ? tokens[row] : check.limit);
    rows[row] = static_cast<int32_t>(row);
  }
}

struct SortedRows {
  const uint32_t* keys;
  const int32_t* rows;
  int64_t count, vocab, dim;

  __device__ bool Begins(int64_t place) const { return place == 0 || keys[place] != keys[place - 1]; }
  __device__ bool GoesOn(int64_t end) const { return end < count && keys[end] == keys[end - 1]; }
  // The first place beyond the piece that begins at `place`.
  __device__ int64_t EndOfPiece(int64_t place) const {
    int64_t end = place + 1;
    while (end < count && end % kPiece != 0 && keys[end] == keys[place]) ++end;
    return end;
  }
};

// A block for each piece. Whole tokens go to the gradient; of the others a piece that begins at a multiple of kPiece goes to the even one
// of the partials of that multiple, the one that ends there to the odd one before.
template <typename T>
__global__ void AddPieces(SortedRows s, const T* dy, float* gradient, float* partials) {
  for (int64_t place = blockIdx.x; place < s.count; place += gridDim.x) {
    const bool begins = s.Begins(place), at_multiple = place % kPiece == 0;
    if ((!begins && !at_multiple) || s.keys[place] >= s.vocab) continue;  // the same for all threads of the block
    const int64_t end = s.EndOfPiece(place), token = s.keys[place];
    const bool whole = begins && !s.GoesOn(end);
    float* const out = whole ? gradient + token * s.dim : partials + (2 * (place / kPiece) + (at_multiple ? 0 : 1)) * s.dim;
    for (int64_t i = threadIdx.x; i < s.dim; i += blockDim.x) {
      float sum = 0;
#pragma unroll 4
      for (int64_t p = place; p < end; ++p) sum += dy[static_cast<int64_t>(s.rows[p]) * s.dim + i];
      out[i] = whole ? out[i] + sum : sum;
    }
  }
}

// A block for each stretch of kPiece places: the token that begins in it and goes on beyond it has several pieces.
__global__ void AddTokensOfSeveralPieces(SortedRows s, const float* partials, float* gradient) {
  for (int64_t stretch = blockIdx.x; stretch < (s.count - 1) / kPiece; stretch += gridDim.x) {
    const int64_t first = stretch * kPiece, next = first + kPiece, token = s.keys[next - 1];
    const bool fills = s.keys[first] == token;  // the stretch
    if (!s.GoesOn(next) || token >= s.vocab || (fills && !s.Begins(first))) continue;
    for (int64_t i = threadIdx.x; i < s.dim; i += blockDim.x) {
      float sum = partials[(2 * stretch + (fills ? 0 : 1)) * s.dim + i];
      for (int64_t p = next; p < s.count && s.keys[p] == token; p += kPiece) sum += partials[2 * (p / kPiece) * s.dim + i];
      gradient[token * s.dim + i] += sum;
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
    return LaunchStatus(Launch(stream(), BlocksForRows(count_), kThreads, 0, GatherRows<T>, arguments.inputs[0].as<int32_t>(),
                               arguments.parameters[0].f32(), wpe, arguments.outputs[0].as<T>(), count_, length_,
                               op_.parameters[0].shape.dim(1), check_));
  }
};

template <typename T>
class EmbeddingGrad : public EmbeddingBase {
 public:
  using EmbeddingBase::EmbeddingBase;
  EmbeddingGrad(PreparedOp op, Device& device) : EmbeddingBase(std::move(op), device) {
    const auto of_rows = sizeof(uint32_t) * static_cast<size_t>(count_);
    keys_ = Take(of_rows);
    rows_ = Take(of_rows);
    sorted_keys_ = Take(of_rows);
    sorted_rows_ = Take(of_rows);
    sort_ = Take(SortWorkspaceBytes(count_, Bits()));
    partials_ = Take(sizeof(float) * static_cast<size_t>(2 * ((count_ + kPiece - 1) / kPiece) * dim()));
  }
  size_t workspace_bytes() const override { return workspace_bytes_ + kAlignment; }

  absl::Status Run(const KernelArguments& arguments) override {
    const auto* tokens = arguments.inputs[0].as<int32_t>();
    const T* dy = arguments.inputs[1].as<T>();
    if (count_ == 0) return absl::OkStatus();
    if (float* gradient = OutputOrNull(arguments, 0); gradient != nullptr) {
      if (!Accumulates(arguments, 0)) {
        FUSIONLLM_RETURN_IF_ERROR(LaunchStatus(cudaMemsetAsync(gradient, 0, op_.outputs[0].bytes(), stream())));
      }
      FUSIONLLM_RETURN_IF_ERROR(AddRows(tokens, dy, arguments.workspace.data(), gradient));
    }
    float* positions = op_.outputs.size() > 1 ? OutputOrNull(arguments, 1) : nullptr;
    if (positions == nullptr) return absl::OkStatus();
    if (!Accumulates(arguments, 1)) {  // there may be more positions than the length
      FUSIONLLM_RETURN_IF_ERROR(LaunchStatus(cudaMemsetAsync(positions, 0, op_.outputs[1].bytes(), stream())));
    }
    return LaunchStatus(Launch(stream(), BlocksFor(length_ * dim()), kThreads, 0, AddPositions<T>, dy, positions,
                               count_ / std::max<int64_t>(1, length_), length_, dim(), Accumulates(arguments, 1)));
  }

 private:
  static constexpr size_t kAlignment = 256;
  int64_t dim() const { return op_.out(0).dim(1); }
  int Bits() const { return std::bit_width(static_cast<uint64_t>(vocab_)); }  // of `vocab` itself
  size_t Take(size_t bytes) {
    const size_t begin = workspace_bytes_;
    workspace_bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return begin;
  }

  absl::Status AddRows(const int32_t* tokens, const T* dy, std::byte* workspace, float* gradient) const {
    workspace += (kAlignment - reinterpret_cast<uintptr_t>(workspace) % kAlignment) % kAlignment;
    auto* const keys = reinterpret_cast<uint32_t*>(workspace + keys_);
    auto* const rows = reinterpret_cast<int32_t*>(workspace + rows_);
    auto* const sorted_keys = reinterpret_cast<uint32_t*>(workspace + sorted_keys_);
    auto* const sorted_rows = reinterpret_cast<int32_t*>(workspace + sorted_rows_);
    auto* const partials = reinterpret_cast<float*>(workspace + partials_);
    FUSIONLLM_RETURN_IF_ERROR(
        LaunchStatus(Launch(stream(), BlocksFor(count_), kThreads, 0, KeysOfRows, tokens, count_, keys, rows, check_)));
    FUSIONLLM_RETURN_IF_ERROR(LaunchStatus(SortByKey(stream(), keys, rows, count_, Bits(), workspace + sort_, sorted_keys, sorted_rows)));
    const SortedRows sorted{.keys = sorted_keys, .rows = sorted_rows, .count = count_, .vocab = vocab_, .dim = dim()};
    FUSIONLLM_RETURN_IF_ERROR(
        LaunchStatus(Launch(stream(), BlocksForRows(count_), kThreads, 0, AddPieces<T>, sorted, dy, gradient, partials)));
    if (count_ <= kPiece) return absl::OkStatus();
    return LaunchStatus(Launch(stream(), BlocksForRows((count_ - 1) / kPiece), kThreads, 0, AddTokensOfSeveralPieces, sorted,
                               static_cast<const float*>(partials), gradient));
  }

  size_t workspace_bytes_ = 0;
  size_t keys_, rows_, sorted_keys_, sorted_rows_, sort_, partials_;
};

}  // namespace

std::span<const Entry> EmbeddingKernels() {
  static constexpr Entry kEntries[] = {OnBothTypes<Embedding>(OpKind::kEmbedding, "-", "b"),
                                       OnBothTypes<EmbeddingGrad>(OpKind::kEmbeddingGrad, "-b", "ff")};
  return kEntries;
}

}  // namespace fusionllm::kernels::cuda
