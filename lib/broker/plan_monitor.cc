#include "lib/broker/plan_monitor.h"

#include <algorithm>

namespace fusionllm::broker {
namespace {

constexpr size_t kRecentSteps = 5;
constexpr size_t kWellSteps = 15;
// Predictions are low by up to a fifth on busy machines; a promise is discounted by what this plan's own prediction was off by, or by so
// much when the plan never ran well enough to tell.
constexpr double kUnprovenBias = 1.2;
constexpr double kMaxBias = 2;
constexpr double kMinShareOfLink = 0.1;  // of the bytes of the one that sends most over it, in a step

double Median(const std::deque<double>& values) {
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  return sorted.empty() ? 0 : sorted[sorted.size() / 2];
}

// As a sender measures it, who waits for acknowledgements: of small messages the round trip is most of it. `bytes` 0: not known.
double RateOfMessages(double bytes, double rtt_s, double bytes_per_s) {
  return bytes > 0 && bytes_per_s > 0 ? bytes / (rtt_s + bytes / bytes_per_s) : bytes_per_s;
}

void Remember(double value, size_t most, std::deque<double>& values) {
  values.push_back(value);
  if (values.size() > most) values.pop_front();
}

}  // namespace

void PlanMonitor::Begin(const RunPlan& plan, const FiguresOf& figures_of, const SharesLink& shares_link) {
  *this = PlanMonitor();
  plan_ = plan;
  for (const plan::Link& link : plan.plan.links) {
    const auto [src_rank, dst_rank] = plan.RanksOf(link);
    if (src_rank < 0) continue;
    const std::string &src = plan.devices[src_rank], &dst = plan.devices[dst_rank];
    const auto known = std::find_if(links_.begin(), links_.end(), [&](const WatchedLink& w) { return w.src == src && w.dst == dst; });
    const auto bytes = static_cast<double>(link.bytes);
    const double message_bytes = bytes / std::max<double>(1, static_cast<double>(plan.MicroBatchesOf(src_rank)));
    if (known == links_.end()) {
      links_.push_back({.src = src, .dst = dst, .bytes = bytes, .message_bytes = message_bytes});
    } else {
      known->bytes += bytes;
      known->message_bytes = std::min(known->message_bytes, message_bytes);
    }
  }
  for (WatchedLink& link : links_) {
    double most_bytes = 0;
    for (const WatchedLink& other : links_) {
      if (!shares_link({link.src, link.dst}, {other.src, other.dst})) continue;
      ++link.sharers;
      most_bytes = std::max(most_bytes, other.bytes);
    }
    // Labels that wait behind activations on one shared link measure the queue, not the link; the activations do that.
    if (link.bytes < kMinShareOfLink * most_bytes) continue;
    representative_.emplace(link.src, link.dst);
    const LinkFigures figures = figures_of(link.src, link.dst);
    link.planned_bytes_per_s = figures.bytes_per_s / std::max(1, link.sharers);
    link.usual_bytes_per_s = RateOfMessages(link.message_bytes, figures.rtt_s, link.planned_bytes_per_s);
  }
}

std::vector<Slowdown> PlanMonitor::On(const StageMeasured& event) {
  if (event.step <= judged_step_) return {};
  open_[event.step].stages[event.name] = event;
  return JudgeWhole(event.step);
}

std::vector<Slowdown> PlanMonitor::OnStep(int64_t step, double step_seconds) {
  if (step <= judged_step_) return {};
  open_[step].step_seconds = step_seconds;
  return JudgeWhole(step);
}

std::vector<Slowdown> PlanMonitor::JudgeWhole(int64_t step) {
  while (open_.size() > kMaxOpenSteps) open_.erase(open_.begin());
  const auto found = open_.find(step);
  if (found == open_.end() || found->second.step_seconds < 0) return {};
  const OpenStep& open = found->second;
  std::vector<StageLoad> stages;
  for (size_t i = 0; i < plan_.devices.size(); ++i) {
    const auto stage = open.stages.find(plan_.devices[i]);
    if (stage == open.stages.end()) return {};
    stages.push_back({.device = plan_.devices[i],
                      .place = plan_.Describe(static_cast<int>(i)),
                      .busy_s = stage->second.busy_s,
                      .expected_s = plan_.BusySecondsOf(static_cast<int>(i))});
  }
  std::vector<LinkLoad> links;
  for (WatchedLink& link : links_) {
    const auto& rates = open.stages.at(link.src).rates;
    const auto rate = rates.find(link.dst);
    const bool measured = rate != rates.end() && rate->second.samples != link.samples;
    if (measured) {
      link.measured_bytes_per_s = rate->second.bytes_per_s;
      link.samples = rate->second.samples;
    }
    links.push_back({.src = link.src,
                     .dst = link.dst,
                     .bytes = link.bytes,
                     .bytes_per_s = measured ? link.measured_bytes_per_s : 0,
                     .planned_bytes_per_s = link.planned_bytes_per_s,
                     .usual_bytes_per_s = link.usual_bytes_per_s});
  }
  const double step_seconds = open.step_seconds;
  std::vector<Slowdown> slowdowns =
      detector_.Observe({.seconds = step_seconds, .predicted_s = plan_.plan.predicted_step_seconds}, stages, links);
  Remember(step_seconds, kRecentSteps, recent_s_);
  if (detector_.quiet()) Remember(step_seconds, kWellSteps, well_s_);
  if (!detector_.any_slow() && !weighs_late_joiners_) policy_.Reset();
  judged_step_ = step;
  open_.erase(open_.begin(), open_.upper_bound(step));  // earlier ones whose reports were lost with a broker
  return slowdowns;
}

bool PlanMonitor::AsksForAlternative(int64_t last_step, bool late_joiners) {
  const bool weighs = late_joiners && recent_s_.size() >= kRecentSteps;
  if ((!detector_.any_slow() && !weighs) || last_step < next_question_) return false;
  next_question_ = last_step + kConsultationSteps;
  weighs_late_joiners_ = weighs;
  return true;
}

double PlanMonitor::PredictionBias() const {
  if (well_s_.size() < kRecentSteps || !(plan_.plan.predicted_step_seconds > 0)) return kUnprovenBias;
  return std::clamp(Median(well_s_) / plan_.plan.predicted_step_seconds, 1.0, kMaxBias);
}

MigrationPolicy::Decision PlanMonitor::DecideMigration(const RunPlan& other, int64_t last_step, int64_t total_steps, double move_s,
                                                       std::string* figures) {
  const double bias = PredictionBias();
  const MigrationPolicy::Decision decision = policy_.Decide({.step_s = Median(recent_s_),
                                                             .loss_cost = LossCost(plan_),
                                                             .other_step_s = other.plan.predicted_step_seconds * bias,
                                                             .bias = bias,
                                                             .other_loss_cost = LossCost(other),
                                                             .steps_left = total_steps - last_step,
                                                             .cost_s = move_s},
                                                            figures);
  if (decision == MigrationPolicy::Decision::kAskAgain) {
    next_question_ = last_step + kConfirmationSteps;
  } else {
    weighs_late_joiners_ = false;
  }
  return decision;
}

CurrentPlan PlanMonitor::CurrentPlanAt(int64_t last_step, int64_t total_steps, double move_s) const {
  return {.document = plan_.document,
          .devices = plan_.devices,
          .steps_left = std::max<int64_t>(0, total_steps - last_step),
          .step_s = recent_s_.empty() ? 0 : Median(recent_s_),
          .bias = PredictionBias(),
          .move_s = move_s};
}

std::map<std::string, double> PlanMonitor::Slowness() const {
  std::map<std::string, double> slowness;
  for (const std::string& device : plan_.devices) {
    if (detector_.IsSlow(device)) slowness[device] = detector_.SlownessOf(device);
  }
  return slowness;
}

std::map<std::pair<std::string, std::string>, double> PlanMonitor::SlowLinks() const {
  std::map<std::pair<std::string, std::string>, double> slow;
  for (const WatchedLink& link : links_) {
    if (detector_.IsSlow(link.src, link.dst) && link.measured_bytes_per_s > 0) {
      slow[{link.src, link.dst}] = link.measured_bytes_per_s * link.sharers;
    }
  }
  return slow;
}

}  // namespace fusionllm::broker
