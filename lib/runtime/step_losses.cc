#include "lib/runtime/step_losses.h"

#include <cmath>
#include <utility>

#include "lib/base/status_macros.h"

namespace fusionllm::runtime {

namespace {

double LabelCount(const autodiff::TrainingGraph& training, opdag::OpId cross_entropy) {
  return static_cast<double>(training.graph.value(training.graph.op(cross_entropy).inputs[1]).type.elements());
}

}  // namespace

const opdag::Op& LossOpOf(const autodiff::TrainingGraph& training) {
  return training.graph.op(training.graph.value(training.graph.loss()).producer);
}

double TargetsOf(const autodiff::TrainingGraph& training) {
  double targets = 0;
  for (const opdag::OpId op : training.target_ops) targets += LabelCount(training, op);
  return targets;
}

double CountedShare(const autodiff::TrainingGraph& training, const std::vector<float>& rounded) {
  if (rounded.empty()) return 1;
  double counted = 0;
  for (size_t i = 0; i < rounded.size(); ++i) {
    counted += std::round(static_cast<double>(rounded[i]) * LabelCount(training, training.target_ops[i]));
  }
  return counted / TargetsOf(training);
}

double MeanLoss(const autodiff::TrainingGraph& training, const LossSums& sums, double micro_batches) {
  const double weights = training.counted == opdag::kNone ? micro_batches : sums.counted;
  return weights > 0 ? sums.loss / weights : 0;
}

absl::StatusOr<float> AwaitScalar(tensor::PendingCopy& copy) {
  float number = 0;
  FUSIONLLM_RETURN_IF_ERROR(copy.Wait(&number));
  return number;
}

absl::StatusOr<EvaluatedMicroBatch> EvaluatedOf(
    const autodiff::TrainingGraph& training,
    const std::function<absl::StatusOr<std::unique_ptr<tensor::PendingCopy>>(opdag::ValueId)>& scalar_after) {
  const auto number = [&](opdag::ValueId value) -> absl::StatusOr<float> {
    FUSIONLLM_ASSIGN_OR_RETURN(const auto copy, scalar_after(value));
    return AwaitScalar(*copy);
  };
  EvaluatedMicroBatch evaluated;
  FUSIONLLM_ASSIGN_OR_RETURN(evaluated.loss, number(training.graph.loss()));
  const std::vector<opdag::ValueId> figures = autodiff::TargetStatistics(training);
  std::vector<float> counted;
  for (size_t i = 0; i < training.target_ops.size(); ++i) {
    FUSIONLLM_ASSIGN_OR_RETURN(counted.emplace_back(), number(figures[i]));
  }
  evaluated.counted = CountedShare(training, counted);
  if (figures.size() == counted.size()) return evaluated;
  FUSIONLLM_ASSIGN_OR_RETURN(evaluated.correct, number(figures.back()));
  return evaluated;
}

void StepLosses::Begin() {
  pending_.clear();
  sums_ = {};
}

void StepLosses::Add(int micro_batch, std::unique_ptr<tensor::PendingCopy> loss,
                     std::vector<std::unique_ptr<tensor::PendingCopy>> counted) {
  pending_.push_back({micro_batch, std::move(loss), std::move(counted)});
}

absl::StatusOr<std::optional<StepLosses::NotFinite>> StepLosses::Settle(int last) {
  while (!pending_.empty() && pending_.front().micro_batch <= last) {
    const Pending pending = std::move(pending_.front());
    pending_.pop_front();
    FUSIONLLM_ASSIGN_OR_RETURN(const float loss, AwaitScalar(*pending.loss));
    if (!std::isfinite(loss)) return NotFinite{pending.micro_batch, loss};
    std::vector<float> counted;
    for (const auto& copy : pending.counted) {
      FUSIONLLM_ASSIGN_OR_RETURN(counted.emplace_back(), AwaitScalar(*copy));
    }
    const double share = CountedShare(training_, counted);
    sums_.loss += training_.counted == opdag::kNone ? loss : share * loss;
    sums_.counted += share;
  }
  return std::nullopt;
}

}  // namespace fusionllm::runtime
