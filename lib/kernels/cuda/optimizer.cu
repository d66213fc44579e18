// Updates of all parameters in one launch: blocks take chunks, and a chunk knows its tensor.
#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "lib/base/status_macros.h"
#include "lib/kernels/cuda/cuda.h"
#include "lib/kernels/cuda/launch.h"

namespace fusionllm::kernels::cuda {
namespace {

constexpr int64_t kChunk = 8192;  // elements; sums of squares are cut by it, too, so it must not depend on the card
constexpr size_t kMaxTerms = 8;

// Part of a tensor, as kernels get it.
struct Piece {
  const float* gradient;
  float* parameter;
  float* states[kMaxOptimizerStates];
  int32_t count;
  int32_t decay;  // 0 or 1: which factors
  bool operator==(const Piece&) const = default;
};

__global__ void AdamWPieces(const Piece* pieces, AdamWFactors plain, AdamWFactors decayed) {
  const Piece piece = pieces[blockIdx.x];
  const AdamWFactors f = piece.decay != 0 ? decayed : plain;
  for (int i = threadIdx.x; i < piece.count; i += blockDim.x) {
    const float g = piece.gradient[i] * f.gradient_scale;
    const float old_m = piece.states[0][i];
    const float m = old_m + f.one_minus_beta1 * (g - old_m);  // torch's lerp form
    const float v = piece.states[1][i] * f.beta2 + f.one_minus_beta2 * g * g;
    piece.states[0][i] = m;
    piece.states[1][i] = v;
    const float denominator = sqrtf(v) / f.bias_correction2_sqrt + f.epsilon;
    piece.parameter[i] = piece.parameter[i] * f.decay_keep - f.step_size * (m / denominator);
  }
}

__global__ void SgdPieces(const Piece* pieces, SgdFactors plain, SgdFactors decayed, bool momentum) {
  const Piece piece = pieces[blockIdx.x];
  const SgdFactors f = piece.decay != 0 ? decayed : plain;
  for (int i = threadIdx.x; i < piece.count; i += blockDim.x) {
    const float g = piece.gradient[i] * f.gradient_scale + f.weight_decay * piece.parameter[i];
    float direction = g;
    if (momentum) {
      const float b = (f.first ? 0.0f : f.keep * piece.states[0][i]) + g;
      piece.states[0][i] = b;
      direction = f.nesterov ? g + f.look_ahead * b : b;
    }
    piece.parameter[i] -= f.learning_rate * direction;
  }
}

__global__ void SquaresOfPieces(const Piece* pieces, double* sums) {
  const Piece piece = pieces[blockIdx.x];
  double sum = 0;
  for (int i = threadIdx.x; i < piece.count; i += blockDim.x) sum += static_cast<double>(piece.gradient[i]) * piece.gradient[i];
  sum = SumOverBlock(sum);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

struct Terms {
  const float* terms[kMaxTerms];
  int count;
};

__global__ void AddTerms(Terms terms, float* sum, int64_t count) {
  for (int64_t i = FirstElement(); i < count; i += ElementStride()) {
    float total = terms.terms[0][i];
    for (int t = 1; t < terms.count; ++t) total += terms.terms[t][i];
    sum[i] = total;
  }
}

// A list of pieces on the device, sent again only when it has changed: in training it is the same in every step.
class PieceList {
 public:
  absl::Status Set(Device& device, std::vector<Piece> pieces) {
    if (pieces == pieces_ && !pieces.empty()) return absl::OkStatus();
    const size_t bytes = pieces.size() * sizeof(Piece);
    if (block_.size() < bytes) FUSIONLLM_RETURN_IF_ERROR(Grow(device, bytes));
    FUSIONLLM_RETURN_IF_ERROR(device.memory().CopyIn(block_.data(), pieces.data(), bytes));
    pieces_ = std::move(pieces);
    return absl::OkStatus();
  }
  const Piece* data() const { return reinterpret_cast<const Piece*>(block_.data()); }
  size_t size() const { return pieces_.size(); }

 private:
  absl::Status Grow(Device& device, size_t bytes) {
    FUSIONLLM_ASSIGN_OR_RETURN(block_, device.memory().Allocate(bytes));
    return absl::OkStatus();
  }

  std::vector<Piece> pieces_;
  tensor::MemoryBlock block_;
};

void Cut(Piece whole, size_t count, std::vector<Piece>& pieces) {
  for (size_t begin = 0; begin < count; begin += kChunk) {
    Piece piece = whole;
    piece.gradient += begin;
    if (piece.parameter != nullptr) piece.parameter += begin;
    for (float*& state : piece.states) {
      if (state != nullptr) state += begin;
    }
    piece.count = static_cast<int32_t>(std::min<size_t>(kChunk, count - begin));
    pieces.push_back(piece);
  }
}

class CudaOptimizer final : public OptimizerKernels {
 public:
  explicit CudaOptimizer(Device& device) : device_(device) {}

  absl::Status Add(std::span<const float* const> terms, float* sum, size_t count) override {
    // The sum so far is the first of the next terms.
    for (size_t done = 0; done < terms.size();) {
      Terms some{};
      if (done > 0) some.terms[some.count++] = sum;
      while (some.count < static_cast<int>(kMaxTerms) && done < terms.size()) some.terms[some.count++] = terms[done++];
      FUSIONLLM_RETURN_IF_ERROR(ToStatus(
          Launch(device_.stream(), BlocksFor(static_cast<int64_t>(count)), kThreads, 0, AddTerms, some, sum, static_cast<int64_t>(count)),
          "adding gradients"));
    }
    return absl::OkStatus();
  }

  absl::Status SumsOfSquares(std::span<const std::span<const float>> gradients, std::span<double> sums) override {
    std::vector<Piece> pieces;
    std::vector<size_t> pieces_of;  // by gradient
    for (const std::span<const float> gradient : gradients) {
      const size_t before = pieces.size();
      Cut({.gradient = gradient.data()}, gradient.size(), pieces);
      pieces_of.push_back(pieces.size() - before);
    }
    if (pieces.empty()) return absl::OkStatus();
    FUSIONLLM_RETURN_IF_ERROR(squared_.Set(device_, std::move(pieces)));
    const size_t bytes = squared_.size() * sizeof(double);
    if (partial_.size() < bytes) {
      FUSIONLLM_ASSIGN_OR_RETURN(partial_, device_.memory().Allocate(bytes));
    }
    auto* partial = reinterpret_cast<double*>(partial_.data());
    FUSIONLLM_RETURN_IF_ERROR(
        ToStatus(Launch(device_.stream(), static_cast<unsigned>(squared_.size()), kThreads, 0, SquaresOfPieces, squared_.data(), partial),
                 "summing squares of gradients"));
    std::vector<double> found(squared_.size());
    FUSIONLLM_RETURN_IF_ERROR(device_.memory().CopyOut(found.data(), partial, bytes));
    size_t next = 0;
    for (size_t i = 0; i < gradients.size(); ++i) {
      sums[i] = 0;
      for (size_t p = 0; p < pieces_of[i]; ++p) sums[i] += found[next++];
    }
    return absl::OkStatus();
  }

  absl::Status Update(const OptimizerConfig& config, const OptimizerStep& step, std::span<const ParameterUpdate> updates) override {
    std::vector<Piece> pieces;
    for (const ParameterUpdate& u : updates) {
      Cut({.gradient = u.gradient, .parameter = u.parameter, .states = {u.states[0], u.states[1]}, .decay = u.decay ? 1 : 0}, u.count,
          pieces);
    }
    if (pieces.empty()) return absl::OkStatus();
    FUSIONLLM_RETURN_IF_ERROR(updated_.Set(device_, std::move(pieces)));
    const auto blocks = static_cast<unsigned>(updated_.size());
    if (config.kind == OptimizerConfig::Kind::kAdamW) {
      return ToStatus(Launch(device_.stream(), blocks, kThreads, 0, AdamWPieces, updated_.data(), AdamWFactorsOf(config, step, false),
                             AdamWFactorsOf(config, step, true)),
                      "updating parameters");
    }
    return ToStatus(Launch(device_.stream(), blocks, kThreads, 0, SgdPieces, updated_.data(), SgdFactorsOf(config, step, false),
                           SgdFactorsOf(config, step, true), !StateNames(config).empty()),
                    "updating parameters");
  }

 private:
  Device& device_;
  PieceList updated_, squared_;
  tensor::MemoryBlock partial_;
};

}  // namespace

std::unique_ptr<OptimizerKernels> MakeOptimizer(Device& device) { return std::make_unique<CudaOptimizer>(device); }

}  // namespace fusionllm::kernels::cuda
