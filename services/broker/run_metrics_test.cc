#include "services/broker/run_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "absl/strings/str_split.h"
#include "proto/fusionllm/v1/broker.pb.h"

namespace fusionllm::services {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

class RunMetricsTest : public ::testing::Test {
 protected:
  // The value of a series as exported, NaN when there is none.
  double Value(const std::string& series) { return ValueIn(registry_, series); }
  static double ValueIn(metrics::Registry& registry, const std::string& series) {
    const std::string text = "\n" + registry.Text(), line = "\nfusionllm_" + series + " ";
    const size_t at = text.find(line);
    return at == std::string::npos ? kNone : std::stod(text.substr(at + line.size()));
  }

  static broker::RunPlan PlanOn(std::vector<std::string> devices, double predicted_s) {
    return {.devices = std::move(devices), .plan = {.predicted_step_seconds = predicted_s}};
  }
  static broker::StepRecord Step(int64_t step, double seconds, float loss = 2) {
    return {.step = step, .loss = loss, .gradient_norm = 0.5, .learning_rate = 1e-3, .step_seconds = seconds};
  }
  static v1::StageTimes Times(int64_t step, double busy, double forward = 0, double backward = 0) {
    v1::StageTimes times;
    times.set_step(step);
    times.set_busy_seconds(busy);
    times.set_forward_seconds(forward);
    times.set_backward_seconds(backward);
    return times;
  }
  static v1::LinkBytes& AddLink(v1::StageTimes& times, const std::string& peer, std::vector<int64_t> by_class) {
    v1::LinkBytes& link = *times.add_links();
    link.set_peer(peer);
    for (const int64_t bytes : by_class) link.add_wire_bytes_sent_by_class(bytes);
    return link;
  }

  double now_s_ = 100;
  metrics::Registry registry_{"test", "0"};
  RunMetrics run_metrics_{registry_,
                          {.targets_per_step = 1'000, .samples_per_step = 8, .total_steps = 50, .now_s = [this] { return now_s_; }}};
};

// What counts is known from the start, and an age; what is measured is not.
TEST_F(RunMetricsTest, NothingIsExportedBeforeItIsKnown) {
  const std::string text = registry_.Text();
  EXPECT_THAT(text, ::testing::Not(::testing::HasSubstr("fusionllm_loss")));
  std::set<std::string> series;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    if (line[0] != '#') series.emplace(line.substr(0, line.find_first_of("{ ")));
  }
  EXPECT_THAT(series, ::testing::ElementsAre("fusionllm_build_info", "fusionllm_recoveries_total", "fusionllm_replans_total",
                                             "fusionllm_step_age_seconds"));
}

TEST_F(RunMetricsTest, TheFirstOfWhatIsCountedIsARise) {
  EXPECT_DOUBLE_EQ(Value("recoveries_total"), 0);
  for (const char* reason : {"executor_lost", "link_degraded", "straggler", "compression_backoff", "other"}) {
    EXPECT_DOUBLE_EQ(Value("replans_total{reason=\"" + std::string(reason) + "\"}"), 0) << reason;
  }
}

TEST_F(RunMetricsTest, WhatHappensIsOnThePage) {
  EXPECT_THAT(run_metrics_.ProgressJson(), ::testing::Not(::testing::HasSubstr("events")));
  run_metrics_.Event({.reason = "SpareActivated", .message = "c takes stage 1 from b"});
  EXPECT_THAT(run_metrics_.ProgressJson(), ::testing::HasSubstr("\"message\":\"c takes stage 1 from b\""));
}

TEST_F(RunMetricsTest, TheAgeOfAStepCountsFromTheLastOne) {
  now_s_ = 130;
  EXPECT_DOUBLE_EQ(Value("step_age_seconds"), 30) << "none yet: since it began";
  run_metrics_.Step(Step(1, 0.5));
  now_s_ = 137;
  EXPECT_DOUBLE_EQ(Value("step_age_seconds"), 7);
}

TEST_F(RunMetricsTest, AStepMovesProgress) {
  run_metrics_.Plan(PlanOn({"a"}, 0.5));
  run_metrics_.Step(Step(1, 0.5, 2.0F));
  EXPECT_DOUBLE_EQ(Value("loss"), 2);
  EXPECT_DOUBLE_EQ(Value("perplexity"), std::exp(2.0));
  EXPECT_DOUBLE_EQ(Value("grad_norm"), 0.5);
  EXPECT_DOUBLE_EQ(Value("learning_rate"), 1e-3);
  EXPECT_DOUBLE_EQ(Value("tokens_per_second"), 2'000);
  EXPECT_DOUBLE_EQ(Value("samples_per_second"), 16);
  EXPECT_DOUBLE_EQ(Value("tokens_total"), 1'000);
  EXPECT_DOUBLE_EQ(Value("progress_ratio"), 0.02);
  EXPECT_DOUBLE_EQ(Value("eta_seconds"), 24.5);
  EXPECT_DOUBLE_EQ(Value("step_seconds_count"), 1);
  EXPECT_DOUBLE_EQ(Value("step_seconds_sum"), 0.5);
}

TEST_F(RunMetricsTest, StepsMadeAgainCountOnce) {
  for (const int64_t step : {1, 2, 3, 2, 3, 4}) run_metrics_.Step(Step(step, 0.1));
  EXPECT_DOUBLE_EQ(Value("tokens_total"), 4'000);
  EXPECT_DOUBLE_EQ(Value("step_seconds_count"), 6) << "they did take their time";
}

TEST_F(RunMetricsTest, TargetsThatTheLossIgnoresAreCountedApart) {
  for (const int64_t step : {1, 2, 1, 2, 3}) {
    broker::StepRecord record = Step(step, 0.5);
    record.counted = step == 2 ? 0.25 : 1;
    run_metrics_.Step(record);
    EXPECT_DOUBLE_EQ(Value("tokens_per_second"), step == 2 ? 500 : 2'000);
  }
  EXPECT_DOUBLE_EQ(Value("tokens_total"), 2'250);
  EXPECT_DOUBLE_EQ(Value("ignored_tokens_total"), 750);
}

TEST_F(RunMetricsTest, ImagesHaveNoPerplexity) {
  metrics::Registry registry("test", "0");
  RunMetrics run_metrics(registry, {.targets_per_step = 8, .samples_per_step = 8, .total_steps = 5, .text = false});
  run_metrics.Step(Step(1, 1));
  EXPECT_THAT(registry.Text(), ::testing::Not(::testing::HasSubstr("perplexity")));
  EXPECT_THAT(registry.Text(), ::testing::HasSubstr("fusionllm_loss 2\n"));
}

TEST_F(RunMetricsTest, DriftLeavesTheFirstStepsOfAPlanOut) {
  run_metrics_.Plan(PlanOn({"a"}, 0.5));
  EXPECT_DOUBLE_EQ(Value("plan_predicted_step_seconds"), 0.5);
  run_metrics_.Step(Step(1, 9));
  run_metrics_.Step(Step(2, 7));
  EXPECT_TRUE(std::isnan(Value("plan_drift_ratio")));
  run_metrics_.Step(Step(3, 0.5));
  run_metrics_.Step(Step(4, 1.0));
  EXPECT_DOUBLE_EQ(Value("plan_drift_ratio"), 1.5);
  EXPECT_DOUBLE_EQ(Value("eta_seconds"), 46 * 0.75);
  run_metrics_.Plan(PlanOn({"b"}, 2));
  EXPECT_TRUE(std::isnan(Value("plan_drift_ratio")));
}

TEST_F(RunMetricsTest, ShareOfStagesInWhateverOrderReportsCome) {
  run_metrics_.Plan(PlanOn({"a", "b"}, 1));
  run_metrics_.StageTimes("b", Times(1, 0.5, 0.1, 0.4));  // before the step's own report
  run_metrics_.Step(Step(1, 2));
  EXPECT_DOUBLE_EQ(Value("stage_busy_ratio{stage=\"1\"}"), 0.25);
  EXPECT_TRUE(std::isnan(Value("bubble_ratio"))) << "stage 0 has not spoken";
  run_metrics_.StageTimes("a", Times(1, 1.5, 0.5, 1));
  EXPECT_DOUBLE_EQ(Value("stage_busy_ratio{stage=\"0\"}"), 0.75);
  EXPECT_DOUBLE_EQ(Value("bubble_ratio"), 0.5);
  EXPECT_DOUBLE_EQ(Value("stage_compute_seconds{dir=\"forward\",stage=\"1\"}"), 0.1);
  EXPECT_DOUBLE_EQ(Value("stage_compute_seconds{dir=\"backward\",stage=\"0\"}"), 1);
  run_metrics_.Step(Step(2, 1));
  EXPECT_DOUBLE_EQ(Value("bubble_ratio"), 0.5) << "of the last step that is known whole";
  run_metrics_.Plan(PlanOn({"a"}, 1));
  EXPECT_TRUE(std::isnan(Value("stage_busy_ratio{stage=\"1\"}"))) << "there is no such stage any more";
}

TEST_F(RunMetricsTest, ReplicasOfAStageAreReportedByTheirMean) {
  broker::RunPlan plan = PlanOn({"a", "b", "c", "d"}, 1);  // c and d are a second pipeline
  plan.plan.replicas = 2;
  run_metrics_.Plan(plan);
  run_metrics_.StageTimes("a", Times(1, 1.5, 0.5, 1));
  run_metrics_.StageTimes("b", Times(1, 0.5, 0.1, 0.4));
  run_metrics_.StageTimes("c", Times(1, 0.5, 0.1, 0.4));
  run_metrics_.StageTimes("d", Times(1, 0.5, 0.1, 0.4));
  run_metrics_.Step(Step(1, 2));
  EXPECT_DOUBLE_EQ(Value("stage_busy_ratio{stage=\"0\"}"), 0.5);
  EXPECT_DOUBLE_EQ(Value("stage_busy_ratio{stage=\"1\"}"), 0.25);
  EXPECT_TRUE(std::isnan(Value("stage_busy_ratio{stage=\"2\"}"))) << "there are two stages";
  EXPECT_DOUBLE_EQ(Value("bubble_ratio"), 1 - 3.0 / 8);
  EXPECT_DOUBLE_EQ(Value("stage_compute_seconds{dir=\"forward\",stage=\"0\"}"), 0.3);
  EXPECT_DOUBLE_EQ(Value("stage_compute_seconds{dir=\"backward\",stage=\"0\"}"), 0.7);
}

TEST_F(RunMetricsTest, LinkBytesAddUpOverPlans) {
  run_metrics_.Plan(PlanOn({"a", "b"}, 1));
  const auto report = [&](std::vector<int64_t> bytes) {
    v1::StageTimes times = Times(1, 0);
    AddLink(times, "b", std::move(bytes));
    run_metrics_.StageTimes("a", times);
  };
  report({10, 100, 0, 0});
  report({15, 300, 7, 0});
  EXPECT_DOUBLE_EQ(Value("link_bytes_total{class=\"tensor\",dst=\"b\",src=\"a\"}"), 300);
  EXPECT_DOUBLE_EQ(Value("link_bytes_total{class=\"control\",dst=\"b\",src=\"a\"}"), 15);
  EXPECT_DOUBLE_EQ(Value("link_bytes_total{class=\"parameter_sync\",dst=\"b\",src=\"a\"}"), 7);
  EXPECT_TRUE(std::isnan(Value("link_bytes_total{class=\"checkpoint\",dst=\"b\",src=\"a\"}")));
  run_metrics_.Plan(PlanOn({"a", "b"}, 1));  // counts of a new epoch begin at 0
  report({1, 50, 0, 0});
  EXPECT_DOUBLE_EQ(Value("link_bytes_total{class=\"tensor\",dst=\"b\",src=\"a\"}"), 350);
}

TEST_F(RunMetricsTest, WhatIsMeasuredOfLinksIsExportedOnceItIs) {
  run_metrics_.Plan(PlanOn({"a", "b"}, 1));
  v1::StageTimes times = Times(1, 0);
  v1::LinkBytes& link = AddLink(times, "b", {});
  run_metrics_.StageTimes("a", times);
  for (const char* family : {"link_rtt_seconds{dst=\"b\",src=\"a\"}", "link_bandwidth_bytes_per_second{dst=\"b\",src=\"a\"}",
                             "compression_ratio{link=\"a->b\"}", "compression_error{link=\"a->b\"}"}) {
    EXPECT_TRUE(std::isnan(Value(family))) << family;
  }
  link.set_rtt_seconds(0.08);
  link.set_bandwidth_bytes_per_second(1e6);
  link.set_ratio(50);
  link.set_compared_messages(3);
  link.set_relative_error(0.125);
  run_metrics_.StageTimes("a", times);
  EXPECT_DOUBLE_EQ(Value("link_rtt_seconds{dst=\"b\",src=\"a\"}"), 0.08);
  EXPECT_DOUBLE_EQ(Value("link_bandwidth_bytes_per_second{dst=\"b\",src=\"a\"}"), 1e6);
  EXPECT_DOUBLE_EQ(Value("compression_ratio{link=\"a->b\"}"), 50);
  EXPECT_DOUBLE_EQ(Value("compression_error{link=\"a->b\"}"), 0.125);
}

TEST_F(RunMetricsTest, NewPlansAreCountedByWhatLedToThem) {
  const auto replanned = [&](const std::string& reason) { return Value("replans_total{reason=\"" + reason + "\"}"); };
  run_metrics_.Event({.reason = "ExecutorLost", .stage = 1});
  run_metrics_.Event({.reason = "Restored"});
  EXPECT_DOUBLE_EQ(replanned("executor_lost"), 0);
  for (const char* led : {"", "LinkDegraded", "Straggler", "CompressionBackoff", ""}) {
    run_metrics_.Event({.reason = "Replanned"});
    if (*led != 0) run_metrics_.Event({.reason = led});
  }
  for (const char* reason : {"executor_lost", "link_degraded", "straggler", "compression_backoff", "other"}) {
    EXPECT_DOUBLE_EQ(replanned(reason), 1) << reason;
  }
}

TEST_F(RunMetricsTest, WhatHasBeenDealtWithLeadsToNoPlan) {
  for (const char* led : {"LinkDegraded", "LinkRecovered", "Straggler", "StragglerRecovered"}) run_metrics_.Event({.reason = led});
  run_metrics_.Event({.reason = "ExecutorLost"});  // a spare
  run_metrics_.Event({.reason = "Replanned"});
  run_metrics_.Event({.reason = "ExecutorLost", .stage = 1});
  run_metrics_.Event({.reason = "SpareActivated"});
  run_metrics_.Event({.reason = "Replanned"});
  EXPECT_DOUBLE_EQ(Value("replans_total{reason=\"other\"}"), 2);
}

TEST_F(RunMetricsTest, CheckpointsHaveAnAgeADurationAndASize) {
  run_metrics_.ShardWritten(10, 2);  // begun at 98
  now_s_ = 101;
  run_metrics_.ShardWritten(10, 1);
  now_s_ = 103;
  run_metrics_.CheckpointCommitted(10, 4'096);
  now_s_ = 110;
  EXPECT_DOUBLE_EQ(Value("checkpoint_age_seconds"), 7);
  EXPECT_DOUBLE_EQ(Value("checkpoint_bytes"), 4'096);
  EXPECT_DOUBLE_EQ(Value("checkpoint_seconds_sum"), 5);
  EXPECT_DOUBLE_EQ(Value("checkpoint_seconds_count"), 1);
}

// A volume that is full from the beginning, a store that takes nothing.
TEST_F(RunMetricsTest, TheAgeOfACheckpointThatNeverCameCountsFromTheFirstStep) {
  metrics::Registry saving("test", "0"), storing("test", "0");
  RunMetrics saves(saving, {.saves_checkpoints = true, .now_s = [this] { return now_s_; }});
  RunMetrics stores(storing, {.saves_checkpoints = true, .kept_elsewhere = true, .now_s = [this] { return now_s_; }});
  const auto age = [](metrics::Registry& registry) { return ValueIn(registry, "checkpoint_age_seconds"); };
  now_s_ = 200;
  EXPECT_TRUE(std::isnan(age(saving))) << "executors are awaited";
  for (RunMetrics* each : {&run_metrics_, &saves, &stores}) each->Step(Step(1, 1));
  now_s_ = 230;
  for (RunMetrics* each : {&run_metrics_, &saves, &stores}) each->Step(Step(2, 1));
  EXPECT_DOUBLE_EQ(age(saving), 30);
  EXPECT_TRUE(std::isnan(age(registry_))) << "it saves none";
  for (RunMetrics* each : {&saves, &stores}) each->CheckpointCommitted(2, 4'096);
  now_s_ = 240;
  EXPECT_DOUBLE_EQ(age(saving), 10);
  EXPECT_DOUBLE_EQ(age(storing), 40) << "it is not in the store";
  stores.CheckpointKept(2);
  EXPECT_DOUBLE_EQ(age(storing), 0);
  now_s_ = 250;
  saves.CheckpointFound(1);
  EXPECT_DOUBLE_EQ(age(saving), 20) << "a run that falls back has saved nothing";
  metrics::Registry going_on("test", "0");
  RunMetrics goes_on(going_on, {.saves_checkpoints = true, .now_s = [this] { return now_s_; }});
  goes_on.CheckpointFound(2);
  EXPECT_TRUE(std::isnan(age(going_on))) << "it may wait for its executors for long";
}

TEST_F(RunMetricsTest, ACheckpointIsOnThePageWhenItIsWhereTheJobKeepsThem) {
  metrics::Registry registry("test", "0");
  RunMetrics elsewhere(registry, {.kept_elsewhere = true});
  for (RunMetrics* each : {&run_metrics_, &elsewhere}) each->CheckpointCommitted(10, 4'096);
  EXPECT_THAT(run_metrics_.ProgressJson(), ::testing::HasSubstr(R"("checkpoint_step":10)"));
  EXPECT_THAT(elsewhere.ProgressJson(), ::testing::Not(::testing::HasSubstr("checkpoint_step")));
  elsewhere.CheckpointKept(10);
  EXPECT_THAT(elsewhere.ProgressJson(), ::testing::HasSubstr(R"("checkpoint_step":10)"));
}

TEST_F(RunMetricsTest, AnExecutorHasAnAgeWhileItIsThere) {
  run_metrics_.Heard("a");
  now_s_ = 104;
  EXPECT_DOUBLE_EQ(Value("heartbeat_age_seconds{device=\"a\"}"), 4);
  run_metrics_.Heard("a");
  EXPECT_DOUBLE_EQ(Value("heartbeat_age_seconds{device=\"a\"}"), 0);
  run_metrics_.Left("a");
  EXPECT_TRUE(std::isnan(Value("heartbeat_age_seconds{device=\"a\"}")));
}

// A run of two executors and a spare, driven through its state machine.
TEST_F(RunMetricsTest, ExecutorsAndRecoveryFollowTheRun) {
  broker::RunState state({.expected = {"a", "b", "c"}, .total_steps = 5});
  const auto feed = [&](const broker::Event& event) {
    for (const broker::Action& action : state.On(event)) {
      if (std::holds_alternative<broker::PublishPlan>(action)) run_metrics_.Plan(state.plan());
      if (const auto* step = std::get_if<broker::PublishStep>(&action)) run_metrics_.Step(step->record);
    }
    run_metrics_.State(state);
  };
  for (const char* name : {"a", "b", "c"})
    feed(broker::ExecutorJoined{.executor = {.name = name, .incarnation = 1, .site = "s", .spare = *name == 'c'}});
  for (const char* name : {"a", "b", "c"}) feed(broker::Calibrated{.name = name, .profile_document = "{}"});
  EXPECT_DOUBLE_EQ(Value("nodes{state=\"spare\"}"), 3) << "nobody has a stage before there is a plan";
  feed(broker::LinkProbed{.link = {.src = "a", .dst = "b"}});
  ASSERT_EQ(state.phase(), broker::Phase::kPlanning);
  broker::RunPlan plan = PlanOn({"a", "b"}, 1);
  feed(broker::Planned{.id = 1, .plan = plan});
  for (const char* name : {"a", "b"}) feed(broker::StageReady{.epoch = state.epoch(), .name = name});
  feed(broker::StepDone{.epoch = state.epoch(), .name = "a", .record = Step(1, 1)});
  EXPECT_DOUBLE_EQ(Value("nodes{state=\"active\"}"), 2);
  EXPECT_DOUBLE_EQ(Value("nodes{state=\"spare\"}"), 1);
  EXPECT_DOUBLE_EQ(Value("nodes{state=\"lost\"}"), 0);
  EXPECT_DOUBLE_EQ(Value("recoveries_total"), 0);

  now_s_ = 200;
  feed(broker::ExecutorLeft{.name = "b", .incarnation = 1, .why = "killed"});
  EXPECT_DOUBLE_EQ(Value("nodes{state=\"lost\"}"), 1);
  now_s_ = 205;
  feed(broker::StageEnded{.epoch = state.epoch(), .name = "a", .last_step = 1, .status = absl::CancelledError("told to")});
  EXPECT_DOUBLE_EQ(Value("nodes{state=\"lost\"}"), 0) << "the spare has taken the stage";
  EXPECT_DOUBLE_EQ(Value("nodes{state=\"spare\"}"), 0);
  plan.devices = {"a", "c"};
  feed(broker::Planned{.id = 2, .plan = plan});
  for (const char* name : {"a", "c"}) feed(broker::StageReady{.epoch = state.epoch(), .name = name});
  EXPECT_DOUBLE_EQ(Value("recoveries_total"), 0) << "no step has been made yet";
  now_s_ = 212;
  feed(broker::StepDone{.epoch = state.epoch(), .name = "a", .record = Step(1, 1)});
  EXPECT_DOUBLE_EQ(Value("recoveries_total"), 1);
  EXPECT_DOUBLE_EQ(Value("recovery_seconds_sum"), 12);
  feed(broker::StepDone{.epoch = state.epoch(), .name = "a", .record = Step(2, 1)});
  EXPECT_DOUBLE_EQ(Value("recoveries_total"), 1);
}

}  // namespace
}  // namespace fusionllm::services
