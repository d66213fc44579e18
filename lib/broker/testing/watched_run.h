// The fixture of tests of a run that watches itself.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "lib/broker/run_state.h"
#include "lib/broker/testing/run_plans.h"
#include "lib/broker/testing/run_state_harness.h"

namespace fusionllm::broker::testing {

// Two stages of 0.4 s each, at one site each, and a link between them that needs 0.2 s of a step of 1 s; a spare that is not needed yet.
class MonitoredRun : public ::testing::Test {
 protected:
  static constexpr int64_t kBytesPerSecond = 1000;  // of every link, by the probe

  void Start(RunOptions options, const std::string& codec = "fp32") {
    run_.emplace(std::move(options), std::vector<std::string>{"a0", "b0"});
    run_->refine_plan = [this, codec](const RequestPlan& ask, RunPlan& plan) {
      if (ask.alternative > 0 && !alternative_devices_.empty()) plan.devices = alternative_devices_;
      SetStages(plan, std::vector<double>(plan.devices.size(), 0.4), RunStateHarness::kPlannedMemoryBytes);
      plan.plan.predicted_step_seconds = ask.alternative > 0 ? alternative_step_s_ : 1;
      const std::string used = ask.codec_limit.empty() ? codec : ask.codec_limit;
      if (plan.stages() > 1) plan.plan.links = {Between(plan, 0, 1, {.bytes = kBytesPerSecond / 5, .codec = used})};
    };
    run_->probed_bytes_per_s = kBytesPerSecond;
    run_->Join("a0");
    run_->Join("b0");
    run_->Join("s0", /*spare=*/true);
    ASSERT_EQ(state().phase(), Phase::kRunning);
  }
  RunOptions WithSpare(int64_t total_steps = 1000) {
    RunOptions options = Options({"a0", "b0", "s0"});
    options.total_steps = total_steps;
    return options;
  }
  RunState& state() { return run_->state; }

  // One whole step. `rate`: of the link, as a share of what the probe found.
  void Step(double busy_b0 = 0.4, double rate = 1, float loss = 3, double seconds = 1) {
    const int64_t step = state().last_step() + 1;
    run_->Step(step, loss, seconds);
    for (const std::string& device : state().plan().devices) {
      run_->Feed(StageMeasured{.epoch = state().epoch(),
                               .name = device,
                               .step = step,
                               .busy_s = device == "b0" ? busy_b0 : 0.4,
                               .rates = {{"b0", {rate * kBytesPerSecond, step}}, {"s0", {rate * kBytesPerSecond, step}}}});
    }
  }
  void Steps(int count, double busy_b0 = 0.4, double rate = 1, double seconds = 1) {
    for (int i = 0; i < count; ++i) Step(busy_b0, rate, 3, seconds);
  }

  std::optional<RunStateHarness> run_;
  double alternative_step_s_ = 1;
  std::vector<std::string> alternative_devices_;
};

}  // namespace fusionllm::broker::testing
