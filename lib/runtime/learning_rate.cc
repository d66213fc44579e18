#include "lib/runtime/learning_rate.h"

#include <algorithm>
#include <cmath>

namespace fusionllm::runtime {
namespace {

constexpr double kPi = 3.14159265358979323846;

}  // namespace

double LearningRateAt(const LearningRateSchedule& schedule, double base, int64_t step) {
  if (step <= schedule.warmup_steps) return base * static_cast<double>(step) / static_cast<double>(schedule.warmup_steps);
  if (schedule.kind == LearningRateSchedule::Kind::kConstant) return base;
  const double span = static_cast<double>(std::max<int64_t>(1, schedule.total_steps - schedule.warmup_steps));
  const double progress = std::clamp(static_cast<double>(step - schedule.warmup_steps) / span, 0.0, 1.0);
  const double remaining = schedule.kind == LearningRateSchedule::Kind::kCosine ? 0.5 * (1 + std::cos(kPi * progress)) : 1 - progress;
  return schedule.minimum + (base - schedule.minimum) * remaining;
}

float ClipScale(double norm, double limit) {
  if (limit <= 0) return 1.0f;
  return static_cast<float>(std::min(1.0, limit / (norm + 1e-6)));
}

}  // namespace fusionllm::runtime
