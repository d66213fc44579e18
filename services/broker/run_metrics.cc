#include "services/broker/run_metrics.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "proto/fusionllm/v1/broker.pb.h"

namespace fusionllm::services {
namespace {

constexpr char kOther[] = "other";
constexpr size_t kRecentSteps = 20;
constexpr size_t kMaxOpenCheckpoints = 16;

double MachineClock() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

bool LosesAStage(const broker::EmitEvent& event) { return event.reason == "ExecutorLost" && event.stage.has_value(); }

// What an event says about the plan that may follow it; empty: nothing.
std::string ReasonFor(const broker::EmitEvent& event) {
  if (LosesAStage(event)) return "executor_lost";
  if (event.reason == "LinkDegraded") return "link_degraded";
  if (event.reason == "Straggler") return "straggler";
  if (event.reason == "CompressionBackoff") return "compression_backoff";
  for (const char* over : {"SpareActivated", "LinkRecovered", "StragglerRecovered"}) {
    if (event.reason == over) return kOther;
  }
  return "";
}

}  // namespace

RunMetrics::RunMetrics(metrics::Registry& registry, RunMetricsOptions options)
    : options_(std::move(options)),
      now_s_(options_.now_s ? options_.now_s : MachineClock),
      progress_page_(options_.total_steps, options_.targets_per_step),
      stage_metrics_(registry),
      loss_(registry.AddGauge({"loss", "Mean training loss of the last step, of the weights before its update."})),
      perplexity_(registry.AddGauge({"perplexity", "exp(loss), for jobs on text and tokens."})),
      tokens_per_second_(
          registry.AddGauge({"tokens_per_second", "Targets of the last step that count over its seconds; images count as one each."})),
      samples_per_second_(registry.AddGauge({"samples_per_second", "Samples of the last step over its seconds."})),
      gradient_norm_(registry.AddGauge({"grad_norm", "Global norm of the gradients of the last step, before clipping."})),
      learning_rate_(registry.AddGauge({"learning_rate", "Of the last step."})),
      progress_(registry.AddGauge({"progress_ratio", "Steps done over steps wanted."})),
      eta_(registry.AddGauge({"eta_seconds", "Steps left times the mean seconds of the last 20 steps."})),
      step_age_(registry.AddGauge({"step_age_seconds", "Since the last step was done; before the first one, since the broker began."})),
      tokens_(registry.AddCounter(
          {"tokens_total",
           "Targets the model has been trained on, of steps before the broker began as if all counted; steps made again after a restore "
           "count once. Images count as one each."})),
      ignored_tokens_(registry.AddCounter({"ignored_tokens_total", "Targets that the loss ignored (padding), likewise."})),
      step_seconds_(
          registry.AddHistogram({"step_seconds", "From the start of a step to the start of the next, without evaluation and checkpoints."},
                                metrics::ExponentialBuckets(0.005, 2, 18))),
      busy_(registry.AddGauge(
          {"stage_busy_ratio", "Share of the last step that the stage spent computing; of its replicas the mean.", {"stage"}})),
      bubble_(registry.AddGauge({"bubble_ratio", "Share of the last step that the stages together spent not computing."})),
      predicted_(registry.AddGauge({"plan_predicted_step_seconds", "What the plan in force says a step takes."})),
      drift_(registry.AddGauge(
          {"plan_drift_ratio",
           "Mean seconds of the last 20 steps of the plan, its first two aside, over what it predicts; 1: as predicted."})),
      replans_(registry.AddCounter({"replans_total",
                                    "Plans made after the first, by why: executor_lost, link_degraded, straggler, "
                                    "compression_backoff, other.",
                                    {"reason"}})),
      nodes_(registry.AddGauge(
          {"nodes", "Executors: active (has a stage), spare (joined, has none), lost (has a stage, is away).", {"state"}})),
      heartbeat_age_(registry.AddGauge({"heartbeat_age_seconds", "Since the executor was last heard.", {"device"}})),
      checkpoint_age_(
          registry.AddGauge({"checkpoint_age_seconds",
                             "Since the last checkpoint was whole where the job keeps them; before the first one, since the first step."})),
      checkpoint_bytes_(registry.AddGauge({"checkpoint_bytes", "Size of the last whole checkpoint."})),
      recoveries_(registry.AddCounter({"recoveries_total", "Times that steps went on after a loss or a failure had stopped the stages."})),
      recovery_seconds_(registry.AddHistogram({"recovery_seconds", "From the loss or failure to the next step done."},
                                              metrics::ExponentialBuckets(0.25, 2, 14))),
      checkpoint_seconds_(registry.AddHistogram(
          {"checkpoint_seconds", "From the first stage's copy of its tensors to a whole checkpoint; training goes on meanwhile."},
          metrics::ExponentialBuckets(0.01, 2, 18))),
      stepped_at_s_(now_s_()) {
  // Counted from zero: the first is a rise that can be seen.
  for (const char* reason : {"executor_lost", "link_degraded", "straggler", "compression_backoff", kOther}) replans_.Add(0, {reason});
  recoveries_.Add(0);
  registry.OnCollect([this] { Ages(); });
}

void RunMetrics::Plan(const broker::RunPlan& plan) {
  const base::MutexLock lock(mutex_);
  stages_.clear();
  for (int rank = 0; rank < static_cast<int>(plan.devices.size()); ++rank) {
    stages_.push_back({.device = plan.devices[static_cast<size_t>(rank)], .index = plan.StageOf(rank)});
  }
  recent_s_.clear();
  steps_of_plan_ = 0;
  // Stages and links that are no more must not look alive.
  for (const metrics::Gauge& gauge : {busy_, bubble_, drift_}) gauge.Clear();
  stage_metrics_.NewPlan();
  progress_page_.Plan(plan);
  predicted_step_s_ = plan.plan.predicted_step_seconds;
  predicted_.Set(predicted_step_s_);
}

double RunMetrics::RecentStepSeconds() const {
  return std::accumulate(recent_s_.begin(), recent_s_.end(), 0.0) / static_cast<double>(std::max<size_t>(1, recent_s_.size()));
}

void RunMetrics::Step(const broker::StepRecord& record) {
  const base::MutexLock lock(mutex_);
  if (record.counted > 0) {  // else there is none
    loss_.Set(record.loss);
    if (options_.text) perplexity_.Set(std::exp(static_cast<double>(record.loss)));
  }
  gradient_norm_.Set(record.gradient_norm);
  learning_rate_.Set(record.learning_rate);
  if (record.step_seconds > 0) {
    tokens_per_second_.Set(record.counted * static_cast<double>(options_.targets_per_step) / record.step_seconds);
    samples_per_second_.Set(static_cast<double>(options_.samples_per_step) / record.step_seconds);
  }
  step_seconds_.Observe(record.step_seconds);
  if (record.step > counted_to_) {
    counted_to_ = record.step;
    const auto of_a_step = static_cast<double>(options_.targets_per_step);
    ignored_total_ += std::round(of_a_step * (1 - record.counted));
    tokens_.IncreaseTo(static_cast<double>(record.step) * of_a_step - ignored_total_);
    ignored_tokens_.IncreaseTo(ignored_total_);
  }
  if (options_.total_steps > 0) progress_.Set(static_cast<double>(record.step) / static_cast<double>(options_.total_steps));

  const bool warm = ++steps_of_plan_ > kWarmUpSteps;
  if (steps_of_plan_ == kWarmUpSteps + 1) recent_s_.clear();  // what there was until now was better than nothing, for the ETA
  recent_s_.push_back(record.step_seconds);
  if (recent_s_.size() > kRecentSteps) recent_s_.pop_front();
  eta_.Set(static_cast<double>(options_.total_steps - record.step) * RecentStepSeconds());
  if (warm && predicted_step_s_ > 0) drift_.Set(RecentStepSeconds() / predicted_step_s_);

  progress_page_.Step(record, RecentStepSeconds());

  if (options_.saves_checkpoints && !no_checkpoint_since_s_.has_value()) no_checkpoint_since_s_ = now_s_();

  last_step_ = record.step;
  last_step_s_ = record.step_seconds;
  stepped_at_s_ = now_s_();
  Busy();
  if (!trouble_since_s_.has_value()) return;
  recoveries_.Add(1);
  progress_page_.Recovered();
  recovery_seconds_.Observe(now_s_() - *trouble_since_s_);
  trouble_since_s_.reset();
}

// The report of a step and the times of its stages come in any order: shares are worked out when both are there.
void RunMetrics::Busy() {
  if (last_step_s_ <= 0) return;
  double busy_seconds = 0;
  bool all = true;
  struct Replicas {
    double busy_seconds = 0;
    int known = 0;
  };
  std::map<int, Replicas> by_index;
  for (const Stage& stage : stages_) {
    all = all && stage.step == last_step_;
    if (stage.step != last_step_) continue;
    by_index[stage.index].busy_seconds += stage.busy_seconds;
    ++by_index[stage.index].known;
    busy_seconds += stage.busy_seconds;
  }
  for (const auto& [index, replicas] : by_index) {
    busy_.Set(replicas.busy_seconds / (replicas.known * last_step_s_), {absl::StrCat(index)});
  }
  if (all && !stages_.empty()) bubble_.Set(1 - busy_seconds / (static_cast<double>(stages_.size()) * last_step_s_));
}

void RunMetrics::StageTimes(const std::string& device, const v1::StageTimes& times) {
  const base::MutexLock lock(mutex_);
  const auto stage = std::find_if(stages_.begin(), stages_.end(), [&](const Stage& s) { return s.device == device; });
  if (stage == stages_.end()) return;  // of a device whose stage was given away
  stage->step = times.step();
  stage->busy_seconds = times.busy_seconds();
  Busy();
  progress_page_.StageTimes(device, times);
  stage_metrics_.Report(device, stage->index, times);
}

void RunMetrics::Sent(const std::string& device, const v1::LinkBytes& link) {
  const base::MutexLock lock(mutex_);
  stage_metrics_.Sent(device, link);
}

void RunMetrics::Event(const broker::EmitEvent& event) {
  const base::MutexLock lock(mutex_);
  progress_page_.Event(event);
  if (const std::string reason = ReasonFor(event); !reason.empty()) replan_reason_ = reason;
  if (LosesAStage(event) && !trouble_since_s_.has_value()) trouble_since_s_ = now_s_();
  if (event.reason == "Replanned") {
    replans_.Add(1, {replan_reason_});
    replan_reason_ = kOther;
  }
}

void RunMetrics::ShardWritten(int64_t step, double seconds) {
  const base::MutexLock lock(mutex_);
  const double since = now_s_() - seconds;
  const auto [at, is_new] = shards_since_s_.emplace(step, since);
  if (!is_new) at->second = std::min(at->second, since);
  if (shards_since_s_.size() > kMaxOpenCheckpoints) shards_since_s_.erase(shards_since_s_.begin());
}

void RunMetrics::CheckpointCommitted(int64_t step, int64_t bytes) {
  const base::MutexLock lock(mutex_);
  const double now = now_s_();
  if (!options_.kept_elsewhere) Kept(step);
  checkpoint_bytes_.Set(static_cast<double>(bytes));
  if (const auto begun = shards_since_s_.find(step); begun != shards_since_s_.end()) {
    checkpoint_seconds_.Observe(now - begun->second);
  }
  shards_since_s_.erase(shards_since_s_.begin(), shards_since_s_.upper_bound(step));
}

void RunMetrics::CheckpointKept(int64_t step) {
  const base::MutexLock lock(mutex_);
  Kept(step);
}

void RunMetrics::CheckpointFound(int64_t step) {
  const base::MutexLock lock(mutex_);
  progress_page_.CheckpointKept(step);
}

void RunMetrics::Kept(int64_t step) {
  progress_page_.CheckpointKept(step);
  no_checkpoint_since_s_ = now_s_();
}

void RunMetrics::State(const broker::RunState& state) {
  const base::MutexLock lock(mutex_);
  progress_page_.State(state);
  progress_page_.RepresentativeLinks(state.representative_links());
  const std::vector<std::string>& planned = state.plan().devices;
  const auto active = std::count_if(planned.begin(), planned.end(), [&](const auto& device) { return state.executors().contains(device); });
  nodes_.Set(static_cast<double>(active), {"active"});
  nodes_.Set(static_cast<double>(state.executors().size()) - static_cast<double>(active), {"spare"});
  nodes_.Set(static_cast<double>(planned.size()) - static_cast<double>(active), {"lost"});
  if (state.phase() == broker::Phase::kDraining && !trouble_since_s_.has_value()) trouble_since_s_ = now_s_();
}

void RunMetrics::Heard(const std::string& device) {
  const base::MutexLock lock(mutex_);
  heard_at_s_[device] = now_s_();
}

void RunMetrics::Left(const std::string& device) {
  const base::MutexLock lock(mutex_);
  heard_at_s_.erase(device);
}

void RunMetrics::Ages() {
  const base::MutexLock lock(mutex_);
  const double now = now_s_();
  step_age_.Set(now - stepped_at_s_);
  if (no_checkpoint_since_s_.has_value()) checkpoint_age_.Set(now - *no_checkpoint_since_s_);
  heartbeat_age_.Clear();
  for (const auto& [device, at] : heard_at_s_) heartbeat_age_.Set(now - at, {device});
}

}  // namespace fusionllm::services
