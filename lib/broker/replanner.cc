#include "lib/broker/replanner.h"

#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace fusionllm::broker {
namespace {

// Of a move, besides what is measured: to stop, to commit, to plan and to warm up.
constexpr double kMoveSeconds = 2;
constexpr int kWarmUpSteps = 2;

constexpr char kNoCheckpoints[] = "; the job keeps no checkpoints, so that another plan would cost every step made: the plan stays";

}  // namespace

void Replanner::BeginEpoch(const RunPlan& plan, const Measurement& measurement, const ExecutorSet& executors) {
  using Ends = std::pair<std::string, std::string>;
  const auto figures_of = [&](const std::string& src, const std::string& dst) {
    const Link* const link = measurement.LinkBetween(src, dst, executors);
    return link == nullptr ? PlanMonitor::LinkFigures() : PlanMonitor::LinkFigures{link->bytes_per_s, link->rtt_s};
  };
  // Inside a site every device has a port of its own.
  const auto shares_link = [&](const Ends& a, const Ends& b) {
    const Measurement::SharedLink shared_link = measurement.SharedLinkOf(a.first, a.second, executors);
    const bool ports = std::get<0>(shared_link) == "sites" && std::get<1>(shared_link) == std::get<2>(shared_link);
    return measurement.SharedLinkOf(b.first, b.second, executors) == shared_link && (!ports || a.first == b.first || a.second == b.second);
  };
  monitor_.Begin(plan, figures_of, shares_link);
  state_ = State::kMonitoring;
}

void Replanner::OnMeasured(const StageMeasured& event, const PlanEpoch& epoch, ActionQueue& queue) {
  EmitSlowdowns(monitor_.On(event), epoch, queue);
}

void Replanner::OnStep(const StepRecord& record, const PlanEpoch& epoch, ActionQueue& queue) {
  EmitSlowdowns(monitor_.OnStep(record.step, record.step_seconds), epoch, queue);
}

void Replanner::EmitSlowdowns(const std::vector<Slowdown>& slowdowns, const PlanEpoch& epoch, ActionQueue& queue) const {
  for (const Slowdown& slowdown : slowdowns) {
    const bool straggler = slowdown.kind == Slowdown::Kind::kStraggler;
    EmitEvent slowdown_event{.step = epoch.last_step(),
                             .message = slowdown.message,
                             .device = slowdown.device,
                             .peer = slowdown.peer,
                             .measured = slowdown.measured,
                             .planned = slowdown.planned};
    if (straggler) SetStageAndReplica(epoch.plan(), epoch.plan().RankOf(slowdown.device), slowdown_event);
    if (slowdown.recovered) {
      slowdown_event.reason = straggler ? "StragglerRecovered" : "LinkRecovered";
    } else {
      slowdown_event.reason = straggler ? "Straggler" : "LinkDegraded";
      if (!checkpoints_) slowdown_event.message += kNoCheckpoints;
    }
    queue.Push(std::move(slowdown_event));
  }
}

bool Replanner::MayAsk(int64_t last_step) const {
  return checkpoints_ && state_ == State::kMonitoring && last_step + kWarmUpSteps < total_steps_;
}

// A checkpoint, a restart, a restore, and steps that fill the pipeline of the new plan.
double Replanner::SwitchSeconds(const RunPlan& to, const PlanEpoch& epoch, double shard_s) const {
  return epoch.load_s() + shard_s + kMoveSeconds + kWarmUpSteps * to.plan.predicted_step_seconds;
}

void Replanner::Ask(RequestPlan request, const PlanEpoch& epoch, double shard_s, ActionQueue& queue) {
  request.alternative = ++alternatives_asked_;
  request.current_plan = monitor_.CurrentPlanAt(epoch.last_step(), total_steps_, SwitchSeconds(epoch.plan(), epoch, shard_s));
  state_ = State::kAsking;
  queue.Push(std::move(request));
}

bool Replanner::OnAnswer(uint64_t alternative) {
  if (alternative != alternatives_asked_ || state_ != State::kAsking) return false;
  state_ = State::kMonitoring;
  return true;
}

MigrationPolicy::Decision Replanner::DecideMigration(const RunPlan& other, const PlanEpoch& epoch, double shard_s, std::string* figures) {
  return monitor_.DecideMigration(other, epoch.last_step(), total_steps_, SwitchSeconds(other, epoch, shard_s), figures);
}

void Replanner::Decline(const std::vector<std::string>& late_joiners, absl::string_view why, int64_t last_step, ExecutorSet& executors,
                        ActionQueue& queue) {
  if (late_joiners.empty()) return;
  executors.MarkConsidered(late_joiners);
  queue.Push(EmitEvent{.reason = "ReplanDeclined",
                       .step = last_step,
                       .message = absl::StrFormat("%s %s: %s", absl::StrJoin(late_joiners, ", "),
                                                  late_joiners.size() == 1 ? "stays a spare" : "stay spares", why),
                       .device = late_joiners.front()});
}

std::string Replanner::DescribeLateJoiner(const Executor& executor, const PlanEpoch& epoch, const ExecutorSet& executors) const {
  const RunPlan& plan = epoch.plan();
  const bool runs = epoch.runs() || epoch.state() == PlanEpoch::State::kLoading;
  if (!runs || !executors.IsBelowDesired(plan) || plan.Uses(executor.name) || !executors.MayTrain(executor)) return "";
  if (!checkpoints_) return "; the job keeps no checkpoints, so that a plan with it would cost every step made: the plan stays";
  return absl::StrFormat("; the plan was made over %d of %d executors: whether one with it pays is asked", plan.executors,
                         plan.desired_executors);
}

void Replanner::Switch(PlanSwitch plan_switch, const PlanEpoch& epoch, ActionQueue& queue) {
  state_ = State::kSwitching;
  next_plan_ = std::move(plan_switch.plan);
  switch_why_ = std::move(plan_switch.why);
  queue.Push(SendStop{.name = epoch.plan().devices[0], .epoch = epoch.number()});
}

// A broker that was restarted in between has forgotten why, and asks for a plan.
std::optional<RunPlan> Replanner::TakeSwitch() {
  std::optional<RunPlan> plan = std::exchange(next_plan_, std::nullopt);
  reason_ = std::exchange(switch_why_, "");
  ForgetSwitch();
  return plan;
}

void Replanner::ForgetSwitch() {
  if (state_ == State::kSwitching) state_ = State::kMonitoring;
  next_plan_.reset();
  switch_why_.clear();
}

void Replanner::NeedOtherCodecs(std::string why) {
  needs_other_codecs_ = true;
  reason_ = std::move(why);
}

std::string Replanner::OnTaken() {
  needs_spares_ = needs_other_codecs_ = false;
  return std::exchange(reason_, "");
}

}  // namespace fusionllm::broker
