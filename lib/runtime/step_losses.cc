#include "lib/runtime/step_losses.h"

#include <cmath>
#include <utility>

#include "lib/base/status_macros.h"

namespace fusionllm::runtime {

const opdag::Op& LossOpOf(const autodiff::TrainingGraph& training) {
  return training.graph.op(training.graph.value(training.graph.loss()).producer);
}

double TargetsOf(const autodiff::TrainingGraph& training) {
  return static_cast<double>(training.graph.value(LossOpOf(training).inputs.back()).type.elements());
}

double CountedShare(const autodiff::TrainingGraph& training, float rounded) {
  const double targets = TargetsOf(training);
  return std::round(static_cast<double>(rounded) * targets) / targets;
}

absl::StatusOr<float> Arrived(tensor::PendingCopy& copy) {
  float number = 0;
  FUSIONLLM_RETURN_IF_ERROR(copy.Wait(&number));
  return number;
}

void StepLosses::Begin() {
  pending_.clear();
  sums_ = {};
}

void StepLosses::Add(int micro_batch, std::unique_ptr<tensor::PendingCopy> loss, std::unique_ptr<tensor::PendingCopy> counted) {
  pending_.push_back({micro_batch, std::move(loss), std::move(counted)});
}

absl::StatusOr<std::optional<StepLosses::NotFinite>> StepLosses::Settle(int last) {
  while (!pending_.empty() && pending_.front().micro_batch <= last) {
    const Pending pending = std::move(pending_.front());
    pending_.pop_front();
    FUSIONLLM_ASSIGN_OR_RETURN(const float loss, Arrived(*pending.loss));
    if (!std::isfinite(loss)) return NotFinite{pending.micro_batch, loss};
    double share = 1;
    if (pending.counted != nullptr) {
      FUSIONLLM_ASSIGN_OR_RETURN(const float counted, Arrived(*pending.counted));
      share = CountedShare(training_, counted);
    }
    sums_.loss += share * loss;
    sums_.counted += share;
  }
  return std::nullopt;
}

}  // namespace fusionllm::runtime
