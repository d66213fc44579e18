#include <algorithm>
#include <cmath>
#include <vector>

#include "lib/kernels/cpu/cpu.h"
#include "lib/kernels/cpu/vector/channels.h"
#include "lib/kernels/cpu/vector/rows.h"
#include "lib/kernels/cpu/vector/spans.h"

namespace fusionllm::kernels::cpu {
namespace {

constexpr double kDefaultEpsilon = 1e-5;

// Rows of a chunk: about 128 KiB, so that a second pass over the chunk finds it in the L2 cache; few enough for a sum in single precision.
int64_t RowsOfChunk(int64_t width) { return std::clamp<int64_t>(32768 / std::max<int64_t>(1, width), 1, 512); }

struct RowChunks {
  RowChunks(int64_t rows, int64_t width) : rows(rows), step(RowsOfChunk(width)), count(ChunkCount(rows, step)) {}
  int64_t First(int64_t chunk) const { return chunk * step; }
  int64_t Size(int64_t chunk) const { return std::min(step, rows - chunk * step); }
  int64_t rows, step, count;
};

float* Floats(const KernelArguments& arguments) { return reinterpret_cast<float*>(arguments.workspace.data()); }

class LayerNorm : public PooledKernel {
 public:
  using PooledKernel::PooledKernel;
  absl::Status Run(const KernelArguments& arguments) override {
    const int64_t width = op_.in(0).dim(-1);
    const auto epsilon = static_cast<float>(op_.attributes.Number("epsilon", kDefaultEpsilon));
    float* means = OutputOrNull(arguments, 1);
    float* rstds = OutputOrNull(arguments, 2);
    const RowChunks chunks(op_.in(0).rows(), width);
    pool_->Run(chunks.count, [&](int64_t chunk, int) {
      for (int64_t row = chunks.First(chunk); row < chunks.First(chunk) + chunks.Size(chunk); ++row) {
        float mean, rstd;
        LayerNormRow(arguments.inputs[0].f32() + row * width, arguments.parameters[0].f32(), arguments.parameters[1].f32(), epsilon,
                     arguments.outputs[0].f32() + row * width, &mean, &rstd, width);
        if (means != nullptr) means[row] = mean;
        if (rstds != nullptr) rstds[row] = rstd;
      }
    });
    return absl::OkStatus();
  }
};

class LayerNormGrad : public PooledKernel {
 public:
  LayerNormGrad(PreparedOp op, std::shared_ptr<WorkerPool> pool)
      : PooledKernel(std::move(op), std::move(pool)), width_(op_.in(0).dim(-1)), chunks_(op_.in(0).rows(), width_) {}

  size_t workspace_bytes() const override { return sizeof(float) * 2 * width_ * chunks_.count; }

  absl::Status Run(const KernelArguments& arguments) override {
    float* partials = Floats(arguments);
    float* dx = OutputOrNull(arguments, 0);
    pool_->Run(chunks_.count, [&](int64_t chunk, int) {
      float* sums = partials + chunk * 2 * width_;
      std::fill_n(sums, 2 * width_, 0.f);
      for (int64_t row = chunks_.First(chunk); row < chunks_.First(chunk) + chunks_.Size(chunk); ++row) {
        LayerNormRowGrad(arguments.inputs[0].f32() + row * width_, arguments.inputs[1].f32() + row * width_, arguments.parameters[0].f32(),
                         arguments.inputs[2].f32()[row], arguments.inputs[3].f32()[row], dx == nullptr ? nullptr : dx + row * width_, sums,
                         sums + width_, width_);
      }
    });
    for (int64_t chunk = 1; chunk < chunks_.count; ++chunk) AddTo(partials + chunk * 2 * width_, partials, 2 * width_);
    for (int output = 1; output <= 2; ++output) {
      float* gradient = OutputOrNull(arguments, output);
      if (gradient == nullptr) continue;
      if (!Accumulates(arguments, output)) std::fill_n(gradient, width_, 0.f);
      if (chunks_.count > 0) AddTo(partials + (output - 1) * width_, gradient, width_);
    }
    return absl::OkStatus();
  }

 private:
  const int64_t width_;
  const RowChunks chunks_;
};

enum BatchNormParameter { kWeight, kBias, kRunningMean, kRunningVariance, kBatchesTracked };

class BatchNorm : public PooledKernel {
 public:
  BatchNorm(PreparedOp op, std::shared_ptr<WorkerPool> pool)
      : PooledKernel(std::move(op), std::move(pool)), channels_(op_.in(0).dim(-1)), chunks_(op_.in(0).rows(), channels_) {}

  // Mean and sum of centered squares of each chunk, then mean, factor and shift of the whole.
  size_t workspace_bytes() const override { return sizeof(float) * channels_ * (2 * chunks_.count + 3); }

  absl::Status Run(const KernelArguments& arguments) override {
    std::vector<double> mean(channels_), variance(channels_);
    if (arguments.mode == Mode::kEvaluate) {
      std::copy_n(arguments.parameters[kRunningMean].f32(), channels_, mean.begin());
      std::copy_n(arguments.parameters[kRunningVariance].f32(), channels_, variance.begin());
    } else {
      Measure(arguments, mean, variance);
      if (arguments.mode == Mode::kTrain) UpdateRunning(arguments, mean, variance);
    }
    Normalize(arguments, mean, variance);
    return absl::OkStatus();
  }

 private:
  // Chunks are merged by Chan, Golub and LeVeque's rule ("Updating formulae and a pairwise algorithm for computing sample variances",
  // 1979, equation 2.1), so x is read from memory once and no large sums are subtracted.
  void Measure(const KernelArguments& arguments, std::vector<double>& mean, std::vector<double>& variance) const {
    const float* x = arguments.inputs[0].f32();
    pool_->Run(chunks_.count, [&](int64_t chunk, int) {
      float* chunk_mean = Floats(arguments) + chunk * 2 * channels_;
      const float* first = x + chunks_.First(chunk) * channels_;
      std::fill_n(chunk_mean, 2 * channels_, 0.f);
      AddRows(first, chunks_.Size(chunk), channels_, chunk_mean);
      ScaleShift(chunk_mean, 1 / static_cast<float>(chunks_.Size(chunk)), 0, chunk_mean, channels_);
      AddCenteredSquares(first, chunk_mean, chunks_.Size(chunk), channels_, chunk_mean + channels_);
    });
    double merged = 0;
    for (int64_t chunk = 0; chunk < chunks_.count; ++chunk) {
      const float* chunk_mean = Floats(arguments) + chunk * 2 * channels_;
      const auto size = static_cast<double>(chunks_.Size(chunk));
      const double total = merged + size;
      for (int64_t c = 0; c < channels_; ++c) {
        const double delta = chunk_mean[c] - mean[c];
        mean[c] += delta * (size / total);
        variance[c] += chunk_mean[channels_ + c] + delta * delta * (merged * size / total);
      }
      merged = total;
    }
    for (double& v : variance) v /= static_cast<double>(chunks_.rows);
  }

  void UpdateRunning(const KernelArguments& arguments, const std::vector<double>& mean, const std::vector<double>& variance) const {
    const double momentum = op_.attributes.Number("momentum", 0.1);
    const auto rows = static_cast<double>(chunks_.rows);
    const double unbias = rows > 1 ? rows / (rows - 1) : 1;
    float* running_mean = arguments.parameters[kRunningMean].f32();
    float* running_variance = arguments.parameters[kRunningVariance].f32();
    for (int64_t c = 0; c < channels_; ++c) {
      running_mean[c] = static_cast<float>((1 - momentum) * running_mean[c] + momentum * mean[c]);
      running_variance[c] = static_cast<float>((1 - momentum) * running_variance[c] + momentum * variance[c] * unbias);
    }
    ++*arguments.parameters[kBatchesTracked].as<int64_t>();
  }

  void Normalize(const KernelArguments& arguments, const std::vector<double>& mean, const std::vector<double>& variance) const {
    const double epsilon = op_.attributes.Number("epsilon", kDefaultEpsilon);
    float* center = Floats(arguments) + 2 * chunks_.count * channels_;
    float* factor = center + channels_;
    for (int64_t c = 0; c < channels_; ++c) {
      const double rstd = 1 / std::sqrt(variance[c] + epsilon);
      center[c] = static_cast<float>(mean[c]);
      factor[c] = static_cast<float>(rstd * arguments.parameters[kWeight].f32()[c]);
      if (float* saved = OutputOrNull(arguments, 1); saved != nullptr) saved[c] = center[c];
      if (float* saved = OutputOrNull(arguments, 2); saved != nullptr) saved[c] = static_cast<float>(rstd);
    }
    pool_->Run(chunks_.count, [&](int64_t chunk, int) {
      const int64_t offset = chunks_.First(chunk) * channels_;
      NormalizeRows(arguments.inputs[0].f32() + offset, center, factor, arguments.parameters[kBias].f32(), chunks_.Size(chunk), channels_,
                    arguments.outputs[0].f32() + offset);
    });
  }

  const int64_t channels_;
  const RowChunks chunks_;
};

class BatchNormGrad : public PooledKernel {
 public:
  BatchNormGrad(PreparedOp op, std::shared_ptr<WorkerPool> pool)
      : PooledKernel(std::move(op), std::move(pool)), channels_(op_.in(0).dim(-1)), chunks_(op_.in(0).rows(), channels_) {}

  size_t workspace_bytes() const override { return sizeof(float) * channels_ * (2 * chunks_.count + 3); }

  absl::Status Run(const KernelArguments& arguments) override {
    std::vector<double> dweight(channels_), dbias(channels_);
    SumGradients(arguments, dweight, dbias);
    if (OutputOrNull(arguments, 0) != nullptr) GradInput(arguments, dweight, dbias);
    for (int output = 1; output <= 2; ++output) {
      float* gradient = OutputOrNull(arguments, output);
      const std::vector<double>& sums = output == 1 ? dweight : dbias;
      for (int64_t c = 0; gradient != nullptr && c < channels_; ++c) {
        gradient[c] = static_cast<float>(sums[c]) + (Accumulates(arguments, output) ? gradient[c] : 0.f);
      }
    }
    return absl::OkStatus();
  }

 private:
  void SumGradients(const KernelArguments& arguments, std::vector<double>& dweight, std::vector<double>& dbias) const {
    pool_->Run(chunks_.count, [&](int64_t chunk, int) {
      const int64_t offset = chunks_.First(chunk) * channels_;
      float* products = Floats(arguments) + chunk * 2 * channels_;
      std::fill_n(products, 2 * channels_, 0.f);
      AddGradientSums(arguments.inputs[0].f32() + offset, arguments.inputs[1].f32() + offset, arguments.inputs[2].f32(),
                      chunks_.Size(chunk), channels_, products, products + channels_);
    });
    for (int64_t chunk = 0; chunk < chunks_.count; ++chunk) {
      const float* products = Floats(arguments) + chunk * 2 * channels_;
      for (int64_t c = 0; c < channels_; ++c) {
        dweight[c] += products[c];
        dbias[c] += products[channels_ + c];
      }
    }
    for (int64_t c = 0; c < channels_; ++c) dweight[c] *= arguments.inputs[3].f32()[c];
  }

  // dx = w rstd (dy - dbias / n - (x - mean) rstd dweight / n)
  void GradInput(const KernelArguments& arguments, const std::vector<double>& dweight, const std::vector<double>& dbias) const {
    const float* rstd = arguments.inputs[3].f32();
    float* factor = Floats(arguments) + 2 * chunks_.count * channels_;
    float* slope = factor + channels_;
    float* shift = slope + channels_;
    const auto rows = static_cast<double>(chunks_.rows);
    for (int64_t c = 0; c < channels_; ++c) {
      const double scale = static_cast<double>(arguments.parameters[0].f32()[c]) * rstd[c];
      factor[c] = static_cast<float>(scale);
      slope[c] = static_cast<float>(-scale * rstd[c] * dweight[c] / rows);
      shift[c] = static_cast<float>(-scale * dbias[c] / rows);
    }
    pool_->Run(chunks_.count, [&](int64_t chunk, int) {
      const int64_t offset = chunks_.First(chunk) * channels_;
      CombineRows(arguments.inputs[0].f32() + offset, arguments.inputs[1].f32() + offset, arguments.inputs[2].f32(), factor, slope, shift,
                  chunks_.Size(chunk), channels_, arguments.outputs[0].f32() + offset);
    });
  }

  const int64_t channels_;
  const RowChunks chunks_;
};

}  // namespace

std::span<const Entry> NormalizationKernels() {
  static constexpr Entry kEntries[] = {{OpKind::kLayerNorm, Make<LayerNorm>},
                                       {OpKind::kLayerNormGrad, Make<LayerNormGrad>},
                                       {OpKind::kBatchNorm, Make<BatchNorm>},
                                       {OpKind::kBatchNormGrad, Make<BatchNormGrad>}};
  return kEntries;
}

}  // namespace fusionllm::kernels::cpu
