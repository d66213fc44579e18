#include "services/broker/run_progress.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>

#include "lib/base/printable_text.h"
#include "lib/base/truncate_utf8.h"
#include "proto/fusionllm/v1/broker.pb.h"

namespace fusionllm::services {
namespace {

using nlohmann::json;

// A page is to be small; its readers want to know about sites, not about each pair of devices.
constexpr size_t kMaxLinks = 128;

// More than of an event: what to do stands at the end of a sentence.
constexpr size_t kMaxWaitBytes = 768;

using broker::Phase;

bool IsMeasuring(Phase phase) { return phase == Phase::kCalibrating || phase == Phase::kProbing; }
bool IsGathering(Phase phase) { return phase == Phase::kGathering; }
bool IsLoading(Phase phase) { return phase == Phase::kLoading; }
bool IsUnderWay(Phase phase) { return phase != Phase::kFinishing && phase != Phase::kDone && phase != Phase::kFailed; }

// Events that say what a run waits for, and in which phases it does.
struct WaitKind {
  const char* reason;
  bool (*waits)(Phase);
};
constexpr WaitKind kWaits[] = {{"ProbeFailed", IsMeasuring},
                               {"Recovering", IsUnderWay},
                               {"WaitingForData", IsGathering},
                               {"WaitingForExecutors", IsGathering},
                               {"WaitingForSite", IsLoading}};

const WaitKind* WaitOf(const std::string& reason) {
  const auto kind = std::find_if(std::begin(kWaits), std::end(kWaits), [&](const WaitKind& each) { return reason == each.reason; });
  return kind == std::end(kWaits) ? nullptr : &*kind;
}

// JSON has no word for what is not finite; a made-up number does not help.
void Put(json& object, const char* key, double value) {
  if (std::isfinite(value)) object[key] = value;
}

}  // namespace

void RunProgress::Plan(const broker::RunPlan& plan) {
  const base::MutexLock lock(mutex_);
  plan_ = plan;
  recent_step_s_ = 0;
  measured_.clear();
}

void RunProgress::Step(const broker::StepRecord& record, double recent_step_seconds) {
  const base::MutexLock lock(mutex_);
  last_ = record;
  waiting_.reset();
  recent_step_s_ = recent_step_seconds;
}

void RunProgress::StageTimes(const std::string& device, const v1::StageTimes& times) {
  const base::MutexLock lock(mutex_);
  for (const v1::LinkBytes& link : times.links()) {
    if (link.bandwidth_bytes_per_second() <= 0) continue;
    measured_[{device, link.peer()}] = {.bytes_per_s = link.bandwidth_bytes_per_second(), .rtt_s = link.rtt_seconds()};
  }
}

void RunProgress::CheckpointKept(int64_t step) {
  const base::MutexLock lock(mutex_);
  checkpoint_step_ = step;
}

void RunProgress::Recovered() {
  const base::MutexLock lock(mutex_);
  ++recoveries_;
}

void RunProgress::Event(const broker::EmitEvent& event) {
  const base::MutexLock lock(mutex_);
  // Those that a plan begins with are in the job's status; news is who comes to a run that has begun.
  if (event.reason == "ExecutorJoined" && (epoch_ == 0 || event.stage.has_value())) return;
  events_.Add(event, now_());
  if (WaitOf(event.reason) == nullptr) return;
  const std::string message = base::PrintableText(base::TruncateUtf8(event.message, kMaxWaitBytes));
  waiting_ = Wait{event.reason, base::TruncateUtf8(message, kMaxWaitBytes)};
}

void RunProgress::State(const broker::RunState& state) {
  const base::MutexLock lock(mutex_);
  phase_ = broker::Name(state.phase());
  if (waiting_.has_value() && !WaitOf(waiting_->reason)->waits(state.phase())) waiting_.reset();
  epoch_ = state.epoch();
  executors_ = state.executors().size();
}

void RunProgress::RepresentativeLinks(const broker::PlanMonitor::LinkSet& links) {
  const base::MutexLock lock(mutex_);
  if (representative_links_ != links) representative_links_ = links;
}

std::string RunProgress::Json() const {
  const base::MutexLock lock(mutex_);
  json object = {{"phase", phase_}, {"epoch", epoch_}, {"executors", executors_}, {"steps", total_steps_}, {"recoveries", recoveries_}};
  object["step"] = last_.has_value() ? last_->step : 0;
  if (last_.has_value()) {
    if (last_->counted > 0) Put(object, "loss", static_cast<double>(last_->loss));
    Put(object, "learning_rate", last_->learning_rate);
    if (last_->step_seconds > 0)
      Put(object, "tokens_per_second", last_->counted * static_cast<double>(targets_per_step_) / last_->step_seconds);
  }
  if (recent_step_s_ > 0) {
    Put(object, "step_seconds", recent_step_s_);
    Put(object, "eta_seconds", static_cast<double>(total_steps_ - (last_.has_value() ? last_->step : 0)) * recent_step_s_);
  }
  if (const double step_s = plan_.plan.predicted_step_seconds; step_s > 0) Put(object, "predicted_step_seconds", step_s);
  json& stages = object["stages"] = plan_.devices;
  if (plan_.plan.replicas > 1) {
    stages = json(std::vector<std::vector<std::string>>(static_cast<size_t>(plan_.stages())));
    for (size_t rank = 0; rank < plan_.devices.size(); ++rank) {
      stages[static_cast<size_t>(plan_.StageOf(static_cast<int>(rank)))].push_back(plan_.devices[rank]);
    }
  }
  if (plan_.executors > 0 && plan_.desired_executors > 0) {
    object["plan_executors"] = plan_.executors;
    object["wanted_executors"] = plan_.desired_executors;
  }

  // The slowest link is the one on which the bytes of a step take longest at the rate that was measured.
  const plan::Link* slowest = nullptr;
  double slowest_s = 0;
  for (const plan::Link& link : plan_.plan.links) {
    const auto [src_rank, dst_rank] = plan_.RanksOf(link);
    if (src_rank < 0) continue;
    const auto measured = measured_.find({plan_.devices.at(src_rank), plan_.devices.at(dst_rank)});
    if (measured == measured_.end() || !representative_links_.contains(measured->first)) continue;
    const double seconds = static_cast<double>(link.bytes) / measured->second.bytes_per_s;
    if (seconds <= slowest_s) continue;
    slowest = &link;
    slowest_s = seconds;
  }
  if (slowest != nullptr) {
    const auto [src_rank, dst_rank] = plan_.RanksOf(*slowest);
    const std::string &src = plan_.devices.at(src_rank), &dst = plan_.devices.at(dst_rank);
    object["slowest_link"] = {{"src", src}, {"dst", dst}, {"codec", slowest->codec}};
    Put(object["slowest_link"], "bandwidth_bytes_per_second", measured_.at({src, dst}).bytes_per_s);
    Put(object["slowest_link"], "seconds_per_step", slowest_s);
  }
  for (const auto& [ends, measured] : measured_) {
    if (!representative_links_.contains(ends)) continue;
    json& links = object["links"];
    if (links.size() == kMaxLinks) break;
    json link = {{"src", ends.first}, {"dst", ends.second}};
    Put(link, "bandwidth_bytes_per_second", measured.bytes_per_s);
    if (measured.rtt_s > 0) Put(link, "rtt_seconds", measured.rtt_s);
    links.push_back(std::move(link));
  }
  if (checkpoint_step_.has_value()) object["checkpoint_step"] = *checkpoint_step_;
  if (waiting_.has_value()) object["waiting"] = {{"reason", waiting_->reason}, {"message", waiting_->message}};
  if (json events = events_.Json(); !events.empty()) object["events"] = std::move(events);
  return object.dump(-1, ' ', /*ensure_ascii=*/false, json::error_handler_t::replace);
}

}  // namespace fusionllm::services
