#include <algorithm>
#include <cmath>

#include "lib/base/status_macros.h"
#include "lib/kernels/cpu/cpu.h"
#include "lib/kernels/cpu/vector/rows.h"
#include "lib/kernels/cpu/vector/spans.h"

namespace fusionllm::kernels::cpu {
namespace {

constexpr int64_t kDefaultIgnored = -100;  // torch's

class CrossEntropyBase : public PooledKernel {
 public:
  CrossEntropyBase(PreparedOp op, std::shared_ptr<WorkerPool> pool)
      : PooledKernel(std::move(op), std::move(pool)),
        rows_(op_.in(0).rows()),
        classes_(op_.in(0).dim(-1)),
        ignored_(op_.attributes.Int("ignore_index", kDefaultIgnored)),
        step_(std::max<int64_t>(1, 16384 / classes_)) {}

 protected:
  absl::Status CheckLabels(const int32_t* labels) const { return CheckRange(op_, "label", labels, rows_, classes_, ignored_); }

  int64_t CountLabels(const int32_t* labels) const {
    return rows_ - std::count_if(labels, labels + rows_, [this](int32_t label) { return label == ignored_; });
  }

  const int64_t rows_, classes_, ignored_, step_;
};

class CrossEntropy : public CrossEntropyBase {
 public:
  using CrossEntropyBase::CrossEntropyBase;

  size_t workspace_bytes() const override { return sizeof(Partial) * ChunkCount(rows_, step_); }

  absl::Status Run(const KernelArguments& arguments) override {
    const auto* labels = arguments.inputs[1].as<int32_t>();
    FUSIONLLM_RETURN_IF_ERROR(CheckLabels(labels));
    auto* partials = reinterpret_cast<Partial*>(arguments.workspace.data());
    const int64_t chunks = ChunkCount(rows_, step_);
    pool_->Run(chunks, [&](int64_t chunk, int) { partials[chunk] = RunChunk(arguments, labels, chunk); });
    Partial total;
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      total.loss += partials[chunk].loss;
      total.correct += partials[chunk].correct;
    }
    const int64_t counted = CountLabels(labels);
    *arguments.outputs[0].f32() = static_cast<float>(counted == 0 ? 0 : total.loss / static_cast<double>(counted));
    if (float* correct = OutputOrNull(arguments, 1); correct != nullptr) *correct = static_cast<float>(total.correct);
    if (float* share = OutputOrNull(arguments, 3); share != nullptr)
      *share = static_cast<float>(static_cast<double>(counted) / static_cast<double>(rows_));
    return absl::OkStatus();
  }

 private:
  struct Partial {
    double loss = 0;
    int64_t correct = 0;
  };

  Partial RunChunk(const KernelArguments& arguments, const int32_t* labels, int64_t chunk) const {
    float* lse = OutputOrNull(arguments, 2);
    Partial partial;
    for (int64_t row = chunk * step_; row < std::min(rows_, (chunk + 1) * step_); ++row) {
      const float* logits = arguments.inputs[0].f32() + row * classes_;
      const float top = RowMax(logits, classes_);
      const float log_sum = top + std::log(RowExp(logits, top, nullptr, classes_));
      if (lse != nullptr) lse[row] = log_sum;
      if (labels[row] == ignored_) continue;
      const float hit = logits[labels[row]];
      partial.loss += static_cast<double>(log_sum) - hit;
      // Of equal logits the first is the answer.
      partial.correct += hit == top && std::find(logits, logits + labels[row], top) == logits + labels[row];
    }
    return partial;
  }
};

class CrossEntropyGrad : public CrossEntropyBase {
 public:
  using CrossEntropyBase::CrossEntropyBase;
  absl::Status Run(const KernelArguments& arguments) override {
    const auto* labels = arguments.inputs[1].as<int32_t>();
    FUSIONLLM_RETURN_IF_ERROR(CheckLabels(labels));
    const int64_t counted = CountLabels(labels);
    const float scale = counted == 0 ? 0 : *arguments.inputs[3].f32() / static_cast<float>(counted);
    pool_->Run(ChunkCount(rows_, step_), [&](int64_t chunk, int) {
      for (int64_t row = chunk * step_; row < std::min(rows_, (chunk + 1) * step_); ++row) {
        float* dlogits = arguments.outputs[0].f32() + row * classes_;
        if (labels[row] == ignored_) {
          std::fill_n(dlogits, classes_, 0.f);
          continue;
        }
        RowExp(arguments.inputs[0].f32() + row * classes_, arguments.inputs[2].f32()[row], dlogits, classes_);
        dlogits[labels[row]] -= 1;
        ScaleShift(dlogits, scale, 0, dlogits, classes_);
      }
    });
    return absl::OkStatus();
  }
};

}  // namespace

std::span<const Entry> LossKernels() {
  static constexpr Entry kEntries[] = {{OpKind::kCrossEntropy, Make<CrossEntropy>},
                                       {OpKind::kCrossEntropyGrad, Make<CrossEntropyGrad>},
                                       {OpKind::kMse, MakeReference},
                                       {OpKind::kMseGrad, MakeReference}};
  return kEntries;
}

}  // namespace fusionllm::kernels::cpu
