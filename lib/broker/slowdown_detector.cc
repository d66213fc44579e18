#include "lib/broker/slowdown_detector.h"

#include <algorithm>

#include "absl/strings/str_format.h"

namespace fusionllm::broker {
namespace {

double MedianDrift(std::vector<double> values) {
  if (values.empty()) return 1;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// How much slower than planned the other stages are; a plan that was too cautious makes no straggler.
double NormOf(std::span<const StageLoad> stages, size_t without) {
  std::vector<double> ratios;
  for (size_t i = 0; i < stages.size(); ++i) {
    if (i != without && stages[i].expected_s > 0) ratios.push_back(stages[i].busy_s / stages[i].expected_s);
  }
  return std::max(1.0, MedianDrift(std::move(ratios)));
}

bool AnySlow(const auto& subjects) {
  return std::any_of(subjects.begin(), subjects.end(), [](const auto& entry) { return entry.second.slow; });
}

}  // namespace

bool SlowdownDetector::Subject::Count(bool bad, bool good, int steps) {
  const bool against = slow ? good : bad;
  streak = against ? streak + 1 : 0;
  if (streak < steps) return false;
  slow = !slow;
  streak = 0;
  return true;
}

std::vector<Slowdown> SlowdownDetector::Observe(const StepTime& step, std::span<const StageLoad> stages, std::span<const LinkLoad> links) {
  std::vector<Slowdown> found;
  if (++steps_seen_ <= options_.warm_up_steps || !(step.seconds > 0)) return found;
  JudgeStages(step, stages, found);
  for (const LinkLoad& link : links) JudgeLink(step, link, found);
  return found;
}

bool SlowdownDetector::Explains(double lost_s, const StepTime& step) const {
  return step.seconds >= options_.min_step_slowdown * step.predicted_s && lost_s >= options_.min_share_of_step * step.seconds;
}

void SlowdownDetector::JudgeStages(const StepTime& step, std::span<const StageLoad> stages, std::vector<Slowdown>& found) {
  const auto judged = std::count_if(stages.begin(), stages.end(), [](const StageLoad& stage) { return stage.expected_s > 0; });
  if (judged < 2) return;
  for (size_t i = 0; i < stages.size(); ++i) {
    const StageLoad& stage = stages[i];
    if (!(stage.expected_s > 0)) continue;
    const double norm = NormOf(stages, i);
    const double usual_s = stage.expected_s * norm;
    Subject& subject = stages_[stage.device];
    subject.slowness = stage.busy_s / usual_s;
    const bool matters = Explains(stage.busy_s - usual_s, step);
    if (!subject.Count(subject.slowness >= options_.straggler_factor && matters, subject.slowness <= options_.straggler_recovery,
                       options_.steps)) {
      continue;
    }
    Slowdown slowdown{.kind = Slowdown::Kind::kStraggler,
                      .device = stage.device,
                      .measured = stage.busy_s,
                      .planned = stage.expected_s,
                      .recovered = !subject.slow};
    if (subject.slow) {
      slowdown.message = absl::StrFormat(
          "%s on %s has been busy for %.3g s a step where the plan counts on %.3g s (%.1f times), for %d steps; the others stand at "
          "%.1f times",
          stage.place, stage.device, stage.busy_s, stage.expected_s, stage.busy_s / stage.expected_s, options_.steps, norm);
    } else {
      slowdown.message = absl::StrFormat("%s on %s is back at %.3g s a step", stage.place, stage.device, stage.busy_s);
    }
    found.push_back(std::move(slowdown));
  }
}

void SlowdownDetector::JudgeLink(const StepTime& step, const LinkLoad& link, std::vector<Slowdown>& found) {
  if (!(link.planned_bytes_per_s > 0)) return;
  Subject& subject = links_[{link.src, link.dst}];
  if (!(link.bytes_per_s > 0)) {
    if (++subject.unknown >= options_.steps) subject.streak = 0;
    return;
  }
  subject.unknown = 0;
  const double usual = link.usual_bytes_per_s > 0 ? link.usual_bytes_per_s : link.planned_bytes_per_s;
  const double share = link.bytes_per_s / usual;
  const double busy_s = link.bytes / link.bytes_per_s;
  const bool matters = Explains(busy_s - link.bytes / usual, step);
  if (!subject.Count(share < options_.link_share && matters, share > options_.link_recovery, options_.steps)) return;
  Slowdown slowdown{.kind = Slowdown::Kind::kLink,
                    .device = link.src,
                    .peer = link.dst,
                    .measured = link.bytes_per_s,
                    .planned = link.planned_bytes_per_s,
                    .recovered = !subject.slow};
  if (subject.slow) {
    const std::string of_messages = usual < link.planned_bytes_per_s ? absl::StrFormat(", %.3g MB/s for such messages", 1e-6 * usual) : "";
    slowdown.message = absl::StrFormat(
        "the link %s -> %s has carried %.3g MB/s where the plan counts on %.3g MB/s%s (%.0f %%), for %d steps; it is busy for %.3g s of a "
        "step of %.3g s",
        link.src, link.dst, 1e-6 * link.bytes_per_s, 1e-6 * link.planned_bytes_per_s, of_messages, 100 * share, options_.steps, busy_s,
        step.seconds);
  } else {
    slowdown.message = absl::StrFormat("the link %s -> %s is back at %.3g MB/s", link.src, link.dst, 1e-6 * link.bytes_per_s);
  }
  found.push_back(std::move(slowdown));
}

bool SlowdownDetector::any_slow() const { return AnySlow(stages_) || AnySlow(links_); }

bool SlowdownDetector::quiet() const {
  const auto calm = [](const auto& entry) { return !entry.second.slow && entry.second.streak == 0; };
  return std::all_of(stages_.begin(), stages_.end(), calm) && std::all_of(links_.begin(), links_.end(), calm);
}

bool SlowdownDetector::IsSlow(const std::string& device) const {
  const auto found = stages_.find(device);
  return found != stages_.end() && found->second.slow;
}

bool SlowdownDetector::IsSlow(const std::string& src, const std::string& dst) const {
  const auto found = links_.find({src, dst});
  return found != links_.end() && found->second.slow;
}

double SlowdownDetector::SlownessOf(const std::string& device) const {
  const auto found = stages_.find(device);
  return found == stages_.end() ? 1 : found->second.slowness;
}

}  // namespace fusionllm::broker
