#include "services/broker/run_progress.h"
#include "lib/broker/testing/run_plans.h"
#include "proto/fusionllm/v1/broker.pb.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace fusionllm::services {
namespace {

using nlohmann::json;

json Page(const RunProgress& progress) { return json::parse(progress.Json()); }

v1::StageTimes Measured(const std::string& peer, double bytes_per_s) {
  v1::StageTimes times;
  v1::LinkBytes& link = *times.add_links();
  link.set_peer(peer);
  link.set_bandwidth_bytes_per_second(bytes_per_s);
  return times;
}

TEST(RunProgressTest, SaysNothingThatIsNotKnown) {
  const json page = Page(RunProgress(100, 4096));
  EXPECT_EQ(page["phase"], "starting");
  EXPECT_EQ(page["step"], 0);
  EXPECT_EQ(page["steps"], 100);
  for (const char* key : {"loss", "eta_seconds", "step_seconds", "predicted_step_seconds", "slowest_link", "checkpoint_step"}) {
    EXPECT_FALSE(page.contains(key)) << key;
  }
}

TEST(RunProgressTest, AStepMovesProgress) {
  RunProgress progress(100, 4096);
  progress.Plan({.devices = {"a", "b"}, .plan = {.predicted_step_seconds = 0.4}});
  progress.Step({.step = 20, .loss = 2.5F, .step_seconds = 0.5}, 0.45);
  progress.CheckpointKept(10);
  const json page = Page(progress);
  EXPECT_EQ(page["step"], 20);
  EXPECT_DOUBLE_EQ(page["loss"], 2.5);
  EXPECT_DOUBLE_EQ(page["tokens_per_second"], 8192);
  EXPECT_DOUBLE_EQ(page["eta_seconds"], 36);
  EXPECT_DOUBLE_EQ(page["step_seconds"], 0.45);
  EXPECT_DOUBLE_EQ(page["predicted_step_seconds"], 0.4);
  EXPECT_EQ(page["stages"], json({"a", "b"}));
  EXPECT_EQ(page["checkpoint_step"], 10);
}

TEST(RunProgressTest, APlanSaysForHowManyOfTheExecutorsItWasMade) {
  RunProgress progress(100, 1);
  progress.Plan({.devices = {"a", "b"}});
  EXPECT_FALSE(Page(progress).contains("plan_executors")) << "an earlier broker's journal does not say";
  progress.Plan({.devices = {"a", "b"}, .executors = 2, .desired_executors = 3});
  EXPECT_EQ(Page(progress)["plan_executors"], 2);
  EXPECT_EQ(Page(progress)["wanted_executors"], 3);
}

TEST(RunProgressTest, AStageOfSeveralReplicasHasSeveralDevices) {
  RunProgress progress(100, 1);
  progress.Plan({.devices = {"a", "b", "c", "d"}});
  EXPECT_EQ(Page(progress)["stages"], json::parse(R"(["a","b","c","d"])"));
  progress.Plan({.devices = {"a", "b", "c", "d"}, .plan = {.replicas = 2}});
  EXPECT_EQ(Page(progress)["stages"], json::parse(R"([["a","c"],["b","d"]])"));
}

TEST(RunProgressTest, TheSlowestLinkIsTheOneThatAStepWaitsForLongest) {
  RunProgress progress(100, 1);
  broker::RunPlan plan = broker::testing::PlanOn({"a", "b", "c"});
  plan.plan.links = {broker::testing::Between(plan, 0, 1, {.bytes = 1'000'000}),
                     broker::testing::Between(plan, 1, 2, {.bytes = 4'000'000, .codec = "int8"})};
  progress.Plan(plan);
  progress.RepresentativeLinks({{"a", "b"}, {"b", "c"}});
  EXPECT_FALSE(Page(progress).contains("slowest_link")) << "nothing has been measured";
  progress.StageTimes("a", Measured("b", 1e6));
  progress.StageTimes("b", Measured("c", 2e6));
  const json slowest = Page(progress)["slowest_link"];
  EXPECT_EQ(slowest["src"], "b");
  EXPECT_EQ(slowest["dst"], "c");
  EXPECT_EQ(slowest["codec"], "int8");
  EXPECT_DOUBLE_EQ(slowest["seconds_per_step"], 2);
  EXPECT_EQ(Page(progress)["links"].size(), 2);
  progress.RepresentativeLinks({{"a", "b"}});
  EXPECT_EQ(Page(progress)["slowest_link"]["src"], "a") << "what b sends waits for others on one wire";
  EXPECT_EQ(Page(progress)["links"], json::parse(R"([{"src":"a","dst":"b","bandwidth_bytes_per_second":1e6}])"));
  progress.Plan({.devices = {"a"}});
  EXPECT_FALSE(Page(progress).contains("slowest_link")) << "of a plan that is no more";
  EXPECT_FALSE(Page(progress).contains("links"));
}

TEST(RunProgressTest, ALossThatIsNoNumberLeavesAReadablePage) {
  RunProgress progress(100, 1);
  progress.Step({.step = 1, .loss = std::numeric_limits<float>::quiet_NaN(), .step_seconds = 1}, 1);
  EXPECT_FALSE(Page(progress).contains("loss"));
  EXPECT_EQ(Page(progress)["step"], 1);
}

class RunProgressWaitTest : public ::testing::Test {
 protected:
  std::string Waiting() const {
    const json page = Page(progress_);
    return page.contains("waiting") ? page["waiting"]["reason"].get<std::string>() + ": " + page["waiting"]["message"].get<std::string>()
                                    : "nothing";
  }

  RunProgress progress_{100, 1};
};

TEST_F(RunProgressWaitTest, WaitLastsUntilAStepIsMade) {
  EXPECT_EQ(Waiting(), "nothing");
  progress_.Event({.reason = "LinkDegraded", .message = "slow"});
  EXPECT_EQ(Waiting(), "nothing");
  progress_.Event({.reason = "Recovering", .message = "recovery 1 of at most 10: b was lost"});
  progress_.Event({.reason = "Restored", .message = "restoring step 10"});
  EXPECT_EQ(Waiting(), "Recovering: recovery 1 of at most 10: b was lost");
  progress_.Event({.reason = "WaitingForSite", .message = "3 files lie in tokyo"});
  EXPECT_EQ(Waiting(), "WaitingForSite: 3 files lie in tokyo");
  progress_.Step({.step = 11, .step_seconds = 1}, 1);
  EXPECT_EQ(Waiting(), "nothing");
}

TEST_F(RunProgressWaitTest, WaitIsOverWithItsPhase) {
  const broker::RunState gathers({.total_steps = 100});
  broker::RunState measures({.expected = {"a"}, .total_steps = 100});
  (void)measures.On(broker::ExecutorJoined{.executor = {.name = "a", .incarnation = 1}});
  ASSERT_EQ(gathers.phase(), broker::Phase::kGathering);
  ASSERT_EQ(measures.phase(), broker::Phase::kCalibrating);
  progress_.Event({.reason = "WaitingForExecutors", .message = "the run waits for c"});
  progress_.State(gathers);
  EXPECT_EQ(Waiting(), "WaitingForExecutors: the run waits for c");
  progress_.State(measures);
  EXPECT_EQ(Waiting(), "nothing");
  progress_.State(gathers);
  EXPECT_EQ(Waiting(), "nothing") << "that wait is over";
  progress_.Event({.reason = "ProbeFailed", .message = "a cannot reach b"});
  progress_.State(measures);
  EXPECT_EQ(Waiting(), "ProbeFailed: a cannot reach b");
  progress_.State(gathers);
  EXPECT_EQ(Waiting(), "nothing");
}

TEST_F(RunProgressWaitTest, LongOrHostileWaitIsCutAndPrintable) {
  progress_.Event({.reason = "ProbeFailed", .message = "\x1b[2J" + std::string(100'000, 'x')});
  EXPECT_THAT(Waiting(), ::testing::StartsWith("ProbeFailed: \\x1b[2Jxxx"));
  EXPECT_LT(Waiting().size(), 1000u);
}

class RunProgressEventsTest : public ::testing::Test {
 protected:
  std::vector<std::string> EventLines() const {
    std::vector<std::string> event_lines;
    const json page = Page(progress_);
    if (!page.contains("events")) return event_lines;
    for (const json& event : page["events"]) {
      event_lines.push_back(event["type"].get<std::string>() + " " + event["reason"].get<std::string>() + ": " +
                            event["message"].get<std::string>());
    }
    return event_lines;
  }

  absl::Time now_ = absl::FromUnixMillis(1'700'000'000'123);
  RunProgress progress_{100, 1, [this] { return now_; }};
};

TEST_F(RunProgressEventsTest, OnlyTheEventsThatUsersReadAreReported) {
  EXPECT_FALSE(Page(progress_).contains("events"));
  progress_.Event({.reason = "CheckpointSaved", .step = 10, .message = "/run/checkpoints/10"});
  EXPECT_FALSE(Page(progress_).contains("events")) << "checkpoint_step says it";
  progress_.Event({.reason = "ExecutorLost", .step = 12, .message = "b (stage 1) was lost after step 12: gone", .device = "b", .stage = 1});
  progress_.Event({.reason = "SpareActivated", .step = 12, .message = "c takes stage 1 from b", .device = "c", .stage = 1});
  EXPECT_THAT(EventLines(), ::testing::ElementsAre("warning ExecutorLost: b (stage 1) was lost after step 12: gone",
                                                   "normal SpareActivated: c takes stage 1 from b"));
  EXPECT_EQ(Page(progress_)["events"][0]["time"], "2023-11-14T22:13:20.123Z");
}

TEST_F(RunProgressEventsTest, ReportsOnlyExecutorsThatJoinARunningRun) {
  progress_.Event({.reason = "ExecutorJoined", .message = "a joined and runs stage 0", .device = "a", .stage = 0});
  progress_.Event({.reason = "ExecutorJoined", .message = "b joined as a spare", .device = "b"});
  EXPECT_THAT(EventLines(), ::testing::IsEmpty());
  broker::RunState begun({.total_steps = 100});
  begun.Adopt(1, {.devices = {"a"}}, {}, {}, 5, {}, {}, {});
  progress_.State(begun);
  progress_.Event({.reason = "ExecutorJoined", .message = "c joined as a spare", .device = "c"});
  EXPECT_THAT(EventLines(), ::testing::ElementsAre("normal ExecutorJoined: c joined as a spare"));
}

TEST_F(RunProgressEventsTest, NumbersRiseAlsoOverLivesOfTheBroker) {
  const auto tell = [](RunProgress& progress) { progress.Event({.reason = "Replanned", .message = "2 stages"}); };
  for (int i = 0; i < 3; ++i) tell(progress_);
  const json first = Page(progress_)["events"];
  EXPECT_EQ(first[1]["number"], first[0]["number"].get<int64_t>() + 1);
  EXPECT_EQ(first[2]["number"], first[0]["number"].get<int64_t>() + 2);
  now_ += absl::Seconds(5);
  RunProgress next(100, 1, [this] { return now_; });
  tell(next);
  EXPECT_GT(Page(next)["events"][0]["number"], first[2]["number"]);
}

TEST_F(RunProgressEventsTest, ThePageStaysSmallAndPrintable) {
  for (int i = 0; i < 1000; ++i) {
    progress_.Event({.reason = "Straggler", .message = std::to_string(i) + "\x1b[2J\n" + std::string(100'000, i % 2 == 0 ? '\x01' : 'x')});
  }
  const std::vector<std::string> event_lines = EventLines();
  ASSERT_EQ(event_lines.size(), RunEvents::kMaxEvents);
  EXPECT_THAT(event_lines.front(), ::testing::StartsWith("warning Straggler: 984\\x1b[2J\\n\\x01"));
  EXPECT_THAT(event_lines.back(), ::testing::StartsWith("warning Straggler: 999\\x1b[2J\\nxxx"));
  EXPECT_LT(progress_.Json().size(), 16 << 10);
}

}  // namespace
}  // namespace fusionllm::services
