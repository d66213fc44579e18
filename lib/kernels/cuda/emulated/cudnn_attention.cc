#include "lib/kernels/cuda/emulated/cudnn_attention.h"

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

#include "lib/kernels/cuda/attention_plan.h"

namespace fusionllm::kernels::cuda {
namespace emulated {
namespace {

std::atomic<CudnnAttention> attention_state = CudnnAttention::kAbsent;
std::atomic<int64_t> runs = 0;

class Plan final : public AttentionPlan {
 public:
  Plan(CudnnAttention what, std::unique_ptr<AttentionPlan> own) : what_(what), own_(std::move(own)) {}
  size_t workspace_bytes() const override { return own_->workspace_bytes() + kMore; }
  absl::Status Run(const AttentionTensors& tensors, void* workspace) const override {
    ++runs;
    if (what_ == CudnnAttention::kIdle) return absl::OkStatus();
    if (what_ == CudnnAttention::kFails || workspace == nullptr) return absl::InternalError("the stand-in does not run");
    return own_->Run(tensors, static_cast<std::byte*>(workspace) + kMore);
  }

 private:
  static constexpr size_t kMore = 256;
  const CudnnAttention what_;
  const std::unique_ptr<AttentionPlan> own_;
};

}  // namespace

void EmulateCudnn(CudnnAttention what) { attention_state = what; }
int64_t TakeCudnnAttentionRuns() { return runs.exchange(0); }

}  // namespace emulated

AttentionPlanOrError PrepareCudnnAttention(Device& device, const AttentionSpec& spec) {
  using emulated::CudnnAttention;
  const CudnnAttention what = emulated::attention_state;
  if (what == CudnnAttention::kAbsent) return absl::FailedPreconditionError("the emulated card has no cuDNN");
  if (what == CudnnAttention::kNoAlgorithm) return absl::UnimplementedError("the stand-in knows no way");
  if (what == CudnnAttention::kBroken) return absl::InternalError("the stand-in's card fails");
  return std::make_unique<emulated::Plan>(what, PrepareTensorCoreAttention(device, spec));
}

}  // namespace fusionllm::kernels::cuda
