// A run as its broker leads it (broker::RunState decides), with executors that are played: what they are asked takes a while, and is never
// answered by one that is not there. They train a model of one number each, so that a run that restores, repeats or leaves out what it
// should not has other losses. Time is told by the test. Not thread-safe.
#pragma once

#include <bit>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "lib/base/philox.h"
#include "lib/broker/testing/run_state_harness.h"

namespace fusionllm::sim {

// Numbers by seed, one after the other.
class SeededRandom {
 public:
  explicit SeededRandom(uint64_t seed) : random_(seed, "before the first step") {}
  int Below(int bound) { return static_cast<int>(random_.Below(drawn_++, static_cast<uint64_t>(bound))); }
  absl::Duration Seconds(int least, int most) { return absl::Seconds(least + Below(most - least + 1)); }

 private:
  const base::CounterRng random_;
  uint64_t drawn_ = 0;
};

inline constexpr int64_t kSteps = 12, kCheckpointEvery = 5;

// The model of each stage after a step, and the loss that it had.
using Model = std::vector<uint64_t>;
inline Model InitialModel(size_t stages) {
  Model model;
  for (uint64_t stage = 0; stage < stages; ++stage) model.push_back(0x9e3779b97f4a7c15 * (stage + 1));
  return model;
}
inline float TrainStep(int64_t step, Model& model) {
  uint64_t activation = static_cast<uint64_t>(step);
  for (uint64_t& stage : model) {
    activation = std::rotl((activation ^ stage) * 0xff51afd7ed558ccd, 31);
    stage = std::rotl(stage + activation, 17) * 0xc4ceb9fe1a85ec53;
  }
  return static_cast<float>(activation >> 40) / (1 << 24);
}

// Of a run that nothing befell.
inline std::map<int64_t, float> UndisturbedLosses(size_t stages) {
  std::map<int64_t, float> losses;
  Model model = InitialModel(stages);
  for (int64_t step = 1; step <= kSteps; ++step) losses[step] = TrainStep(step, model);
  return losses;
}

// What is kept when a broker ends: checkpoints by folder, the newest one, all losses that were reported.
struct DurableState {
  std::map<std::string, std::pair<int64_t, Model>> checkpoints;
  std::string newest;
  std::vector<std::pair<int64_t, float>> losses;
};

class SimulatedRun {
 public:
  // All must outlive it. `expected`: executors, by name, each of which the plan wants.
  SimulatedRun(const std::vector<std::string>& expected, double timeout_s, SeededRandom& rng, DurableState& durable, absl::Time now)
      : rng_(rng), durable_(durable), harness_(Options(expected, timeout_s, durable), expected), now_(now) {
    harness_.refuse = [n = expected.size()](const broker::RequestPlan& ask) -> std::optional<broker::PlanRefused> {
      if (ask.devices.size() >= n) return std::nullopt;
      return broker::PlanRefused{.reason = "TooFewExecutors", .message = absl::StrCat("spec.strategy.stages asks for ", n, " executors")};
    };
    harness_.ignores = [this](const broker::Action& action) {
      scheduled_.push_back({now_ + rng_.Seconds(2, 4), action});
      return true;
    };
    Feed(broker::Started{});
  }

  void Connect(const std::string& name, uint64_t incarnation) {
    if (!here_.emplace(name, incarnation).second || Ended()) return;
    harness_.Join(name, /*spare=*/false, 100, incarnation);
    KeepTime();
  }
  void Disconnect(const std::string& name, const std::string& why) {
    const auto at = here_.find(name);
    if (at == here_.end()) return;
    const uint64_t incarnation = at->second;
    here_.erase(at);
    stages_.erase(name);
    std::erase_if(scheduled_, [&](const ScheduledAction& scheduled) {
      return IsTo(name, scheduled.action);
    });  // a later life of it knows nothing of them
    if (!Ended()) Feed(broker::ExecutorLeft{.name = name, .incarnation = incarnation, .why = why});
  }
  bool IsHere(const std::string& name) const { return here_.contains(name); }
  // The two do not reach each other, though both reach the broker.
  void Cut(const std::string& a, const std::string& b, bool cut) { cut_ = cut ? std::set<std::string>{a, b} : std::set<std::string>(); }

  void Tick(absl::Time now) {
    now_ = now;
    for (size_t i = 0; i < scheduled_.size() && !Ended();) {
      if (scheduled_[i].at > now) {
        ++i;
        continue;
      }
      const broker::Action action = scheduled_[i].action;
      scheduled_.erase(scheduled_.begin() + static_cast<std::ptrdiff_t>(i));
      Execute(action);
      i = 0;
    }
    if (!Ended() && due_.has_value() && now >= due_->second) {
      const uint64_t id = due_->first;
      due_.reset();
      Feed(broker::TimerFired{.id = id});
    }
    if (!Ended()) Train();
  }

  broker::Phase phase() const { return harness_.state.phase(); }
  int64_t last_step() const { return harness_.state.last_step(); }
  bool Ended() const { return phase() == broker::Phase::kDone || phase() == broker::Phase::kFailed; }
  broker::Finish End() const { return broker::testing::Of<broker::Finish>(harness_.all).at(0); }
  std::vector<std::string> EventReasons() const { return broker::testing::Reasons(harness_.all); }

 private:
  struct ScheduledAction {
    absl::Time at;
    broker::Action action;
  };
  struct Stage {
    uint32_t epoch = 0;
    uint64_t model = 0;
    int64_t step = 0;  // that it has seen
    bool started = false;
  };

  static bool IsTo(const std::string& name, const broker::Action& action) {
    const auto* calibrate = std::get_if<broker::StartCalibration>(&action);
    const auto* probe = std::get_if<broker::StartLinkProbe>(&action);
    const auto* assign = std::get_if<broker::SendAssign>(&action);
    const auto* start = std::get_if<broker::SendStart>(&action);
    const auto* abort = std::get_if<broker::SendAbort>(&action);
    return (calibrate != nullptr && calibrate->name == name) || (probe != nullptr && probe->src == name) ||
           (assign != nullptr && assign->name == name) || (start != nullptr && start->name == name) ||
           (abort != nullptr && abort->name == name);
  }

  static broker::RunOptions Options(const std::vector<std::string>& expected, double timeout_s, const DurableState& durable) {
    broker::RunOptions options{.expected = {expected.begin(), expected.end()},
                               .executor_timeout_s = timeout_s,
                               .waits_for_executors = true,
                               .stages_asked = static_cast<int64_t>(expected.size()),
                               .total_steps = kSteps,
                               .checkpoints = true};
    if (durable.newest.empty()) return options;
    options.start_checkpoint = durable.newest;
    options.start_step = durable.checkpoints.at(durable.newest).first;
    return options;
  }

  void Feed(const broker::Event& event) {
    harness_.Feed(event);
    KeepTime();
  }
  void KeepTime() {
    if (harness_.timer.has_value() && harness_.timer->id != timer_) {
      timer_ = harness_.timer->id;
      due_.emplace(timer_, now_ + absl::Seconds(harness_.timer->seconds));
    }
  }
  // The well-meant answer, as the drill has it.
  void Answer(const broker::Action& action) {
    harness_.Answer(action);
    Feed(broker::TimerFired{.id = 0});
  }

  void Execute(const broker::Action& action) {
    if (const auto* calibrate = std::get_if<broker::StartCalibration>(&action)) {
      if (IsHere(calibrate->name)) Answer(action);
    } else if (const auto* probe = std::get_if<broker::StartLinkProbe>(&action)) {
      const bool reached = IsHere(probe->src) && IsHere(probe->dst) && !(cut_.contains(probe->src) && cut_.contains(probe->dst));
      if (reached) return Answer(action);
      Feed(broker::LinkProbed{.link = {.src = probe->src, .dst = probe->dst}, .status = absl::UnavailableError("connection refused")});
    } else if (std::get_if<broker::RequestPlan>(&action) != nullptr) {
      Answer(action);
    } else if (const auto* assign = std::get_if<broker::SendAssign>(&action)) {
      Load(*assign);
    } else if (const auto* start = std::get_if<broker::SendStart>(&action)) {
      const auto stage = stages_.find(start->name);
      if (stage != stages_.end() && stage->second.epoch == start->epoch) stage->second.started = true;
    } else if (const auto* abort = std::get_if<broker::SendAbort>(&action)) {
      stages_.erase(abort->name);
      if (IsHere(abort->name)) Answer(action);
    } else if (const auto* commit = std::get_if<broker::CommitCheckpoint>(&action)) {
      durable_.newest = absl::StrCat("step-", commit->step);
      durable_.checkpoints[durable_.newest] = {commit->step, saved_.at(commit->step)};
      Answer(action);
    } else if (const auto* step = std::get_if<broker::PublishStep>(&action)) {
      durable_.losses.emplace_back(step->record.step, step->record.loss);
    }
  }
  void Load(const broker::SendAssign& assign) {
    if (!IsHere(assign.name)) return;
    const Model initial = InitialModel(harness_.stage_devices.size());
    const Model& model = assign.restore_from.empty() ? initial : durable_.checkpoints.at(assign.restore_from).second;
    stages_[assign.name] = {
        .epoch = assign.epoch, .model = model.at(static_cast<size_t>(assign.stage)), .step = assign.first_step - 1, .started = false};
    Answer(assign);
  }

  // A step of the pipeline, when all of its stages are there and have been told to start.
  void Train() {
    if (phase() != broker::Phase::kRunning) return;
    const std::vector<std::string> devices = harness_.state.plan().devices;
    Model model;
    for (const std::string& device : devices) {
      const auto stage = stages_.find(device);
      if (stage == stages_.end() || stage->second.epoch != harness_.state.epoch() || !stage->second.started) return;
      model.push_back(stage->second.model);
    }
    const int64_t step = stages_.at(devices[0]).step + 1;
    if (step > kSteps) return;
    const float loss = TrainStep(step, model);
    for (size_t i = 0; i < devices.size(); ++i) {
      stages_.at(devices[i]).model = model[i];
      stages_.at(devices[i]).step = step;
    }
    saved_[step] = model;
    harness_.Step(step, loss);
    if (step % kCheckpointEvery == 0 || step == kSteps) harness_.SaveShards(step);
    if (step == kSteps) harness_.EndAll(step);
    KeepTime();
    // What the broker tells of it is not waited for.
    for (const ScheduledAction& scheduled : scheduled_) {
      if (const auto* published = std::get_if<broker::PublishStep>(&scheduled.action)) {
        durable_.losses.emplace_back(published->record.step, published->record.loss);
      }
    }
    std::erase_if(scheduled_,
                  [](const ScheduledAction& scheduled) { return std::get_if<broker::PublishStep>(&scheduled.action) != nullptr; });
  }

  SeededRandom& rng_;
  DurableState& durable_;
  std::vector<ScheduledAction> scheduled_;
  broker::testing::RunStateHarness harness_;
  absl::Time now_;
  std::map<std::string, uint64_t> here_;  // incarnations by name
  std::map<std::string, Stage> stages_;   // by executor
  std::map<int64_t, Model> saved_;        // by step
  std::set<std::string> cut_;
  uint64_t timer_ = 0;
  std::optional<std::pair<uint64_t, absl::Time>> due_;
};

}  // namespace fusionllm::sim
