// A run played from events: executors and scheduler that answer every order at once and well. For the tests of lib/broker.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lib/broker/run_state.h"
#include "lib/broker/testing/run_plans.h"
#include "lib/checkpoint/layout.h"

namespace fusionllm::broker::testing {

template <typename T>
bool Is(const Action& action) {
  return std::holds_alternative<T>(action);
}

template <typename T>
std::vector<T> Of(const std::vector<Action>& actions) {
  std::vector<T> found;
  for (const Action& action : actions) {
    if (const T* match = std::get_if<T>(&action)) found.push_back(*match);
  }
  return found;
}

inline std::vector<std::string> Reasons(const std::vector<Action>& actions) {
  std::vector<std::string> reasons;
  for (const EmitEvent& announce : Of<EmitEvent>(actions)) reasons.push_back(announce.reason);
  return reasons;
}

// Plays executors and scheduler: answers every order at once and well, keeps what was announced.
class RunStateHarness {
 public:
  explicit RunStateHarness(RunOptions options, std::vector<std::string> stage_devices)
      : state(std::move(options)), stage_devices(std::move(stage_devices)) {}

  void Join(const std::string& name, bool spare = false, int64_t memory = 100, uint64_t incarnation = 1) {
    Feed(ExecutorJoined{
        .executor = {
            .name = name, .incarnation = incarnation, .site = name.substr(0, 1), .spare = spare, .pid = 7, .memory_bytes = memory}});
  }

  void Feed(const Event& event) {
    if (const auto* overdue = std::get_if<TimerFired>(&event); overdue != nullptr && timer && timer->id == overdue->id) timer.reset();
    for (const Action& action : state.On(event)) {
      all.push_back(action);
      if (const auto* expect = std::get_if<StartTimer>(&action)) timer = *expect;
      if (ignores && ignores(action)) continue;
      Answer(action);
    }
    while (!answers.empty()) {
      const Event next = answers.front();
      answers.erase(answers.begin());
      Feed(next);
    }
  }

  void Step(int64_t step, float loss = 1, double seconds = 0.1) {
    Feed(StepDone{.epoch = state.epoch(),
                  .name = state.plan().devices.empty() ? "" : state.plan().devices[0],
                  .record = {.step = step, .loss = loss, .step_seconds = seconds}});
  }

  void SaveShards(int64_t step) {
    const int stages = state.plan().stages();  // a last shard may lead to another plan
    for (int s = 0; s < stages; ++s) Feed(Shard(step, s));
  }

  // What the executor of a stage reports, of replica 0.
  ShardWritten Shard(int64_t step, int stage, absl::Status status = absl::OkStatus()) const {
    const std::vector<std::string>& devices = state.plan().devices;
    ShardWritten shard{.epoch = state.epoch(), .name = devices.at(static_cast<size_t>(stage)), .step = step, .stage = stage};
    shard.status = std::move(status);
    if (!shard.status.ok()) return shard;
    shard.files = {{.name = checkpoint::ShardFileName(checkpoint::ShardKind::kModel, stage, state.plan().stages())}};
    shard.samples_consumed = 4 * step;
    return shard;
  }

  void EndAll(int64_t step) {
    const std::vector<std::string> devices = state.plan().devices;  // the last end may lead to another plan
    for (const std::string& device : devices) Feed(StageEnded{.epoch = state.epoch(), .name = device, .last_step = step});
  }

  // The stages do as SendStop asked them.
  void EndAtBoundary() {
    const int64_t step = state.last_step();
    SaveShards(step);
    EndAll(step);
  }

  // So far.
  std::vector<RequestPlan> Alternatives() const {
    std::vector<RequestPlan> asked = Of<RequestPlan>(all);
    std::erase_if(asked, [](const RequestPlan& ask) { return ask.alternative == 0; });
    return asked;
  }
  std::vector<EmitEvent> EventsNamed(const std::string& reason) const {
    std::vector<EmitEvent> events = Of<EmitEvent>(all);
    std::erase_if(events, [&](const EmitEvent& announce) { return announce.reason != reason; });
    return events;
  }

  void Answer(const Action& action) {
    if (const auto* ask = std::get_if<StartCalibration>(&action))
      answers.push_back(Calibrated{.name = ask->name, .profile_document = "{}"});
    if (const auto* ask = std::get_if<StartLinkProbe>(&action))
      answers.push_back(LinkProbed{.link = {.src = ask->src, .dst = ask->dst, .bytes_per_s = probed_bytes_per_s}});
    if (const auto* ask = std::get_if<RequestPlan>(&action)) {
      RunPlan plan{.document = "{}"};
      for (const std::string& device : stage_devices) {
        if (std::find(ask->devices.begin(), ask->devices.end(), device) != ask->devices.end()) plan.devices.push_back(device);
      }
      if (ask->figures_only) plan.devices = ask->current_plan->devices;
      if (refine_plan) refine_plan(*ask, plan);
      if (plan.plan.stages.empty()) SetStages(plan, {}, kPlannedMemoryBytes);
      if (std::optional<PlanRefused> refusal = refuse ? refuse(*ask) : std::nullopt; refusal.has_value()) {
        if (ask->alternative > 0) {
          answers.push_back(AlternativePlanned{
              .alternative = ask->alternative, .plan = absl::FailedPreconditionError(refusal->message), .refusal_reason = refusal->reason});
        } else {
          refusal->id = ask->id;
          answers.push_back(*std::move(refusal));
        }
      } else if (ask->alternative > 0) {
        answers.push_back(AlternativePlanned{.alternative = ask->alternative, .plan = plan});
      } else if (plan.devices.empty()) {
        answers.push_back(PlanRefused{.id = ask->id, .reason = "NoExecutors", .message = "nobody is left"});
      } else {
        answers.push_back(Planned{.id = ask->id, .plan = plan});
      }
    }
    if (const auto* assign = std::get_if<SendAssign>(&action)) answers.push_back(StageReady{.epoch = assign->epoch, .name = assign->name});
    if (const auto* abort = std::get_if<SendAbort>(&action)) {
      answers.push_back(StageEnded{.epoch = abort->epoch, .name = abort->name, .status = absl::CancelledError(abort->why)});
    }
    if (const auto* commit = std::get_if<CommitCheckpoint>(&action)) {
      answers.push_back(CheckpointCommitted{.step = commit->step, .path = "step-" + std::to_string(commit->step)});
    }
  }

  static constexpr int64_t kPlannedMemoryBytes = 50;  // of each rank

  RunState state;
  double probed_bytes_per_s = 1;  // of every link
  std::vector<std::string> stage_devices;
  std::function<void(const RequestPlan&, RunPlan&)> refine_plan;  // what the scheduler answers besides devices
  std::function<std::optional<PlanRefused>(const RequestPlan&)> refuse;
  std::function<bool(const Action&)> ignores;  // orders that are not answered
  std::optional<StartTimer> timer;             // as the shell has it
  std::vector<Action> all;
  std::vector<Event> answers;
};

inline RunOptions Options(std::set<std::string> expected) {
  return {.expected = std::move(expected), .total_steps = 100, .checkpoints = true};
}

}  // namespace fusionllm::broker::testing
