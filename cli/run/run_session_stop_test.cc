// How sessions end before their job does: by signals, when time is up, when the output is not read.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>

#include "cli/run/testing/session_fixture.h"

namespace fusionllm::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(RunSessionTest, TheFirstInterruptStopsAtAStepBoundary) {
  Script({kStep1, "wait-term", kStep2, kSummary, "exit 130"});
  collector_.on_line = [](LineType type, const report::Run& run) {
    if (type == LineType::kStep && run.steps.size() == 1) kill(getpid(), SIGINT);
    return true;
  };
  const auto result = Run();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit_code, kExitInterrupted);
  EXPECT_TRUE(run_.summary.has_value());
  EXPECT_EQ(run_.steps.size(), 2u);
  ExpectNoChildLeft();
}

TEST_F(RunSessionTest, AStopThatTakesLongSaysWhatItWaitsForAndHowToEndAtOnce) {
  Script({kStep1, "wait-term", "wait " + folder_ / "go", kStep2, kSummary, "exit 130"});
  options_.stop_reminder_s = 0.01;
  collector_.on_line = [](LineType type, const report::Run& run) {
    if (type == LineType::kStep && run.steps.size() == 1) kill(getpid(), SIGTERM);
    return true;
  };
  collector_.on_notice = [&](absl::string_view sentence) {
    if (absl::StrContains(sentence, "still waiting")) folder_.Write("go", "");  // else the step would never end
  };
  const auto result = Run();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit_code, kExitInterrupted);
  EXPECT_THAT(collector_.notices,
              ElementsAre(HasSubstr("stopping after this step"),
                          ::testing::AllOf(HasSubstr("the end of the step under way"), HasSubstr("interrupt once more to end at once"))));
  EXPECT_EQ(run_.steps.size(), 2u) << "and it was waited for";
  ExpectNoChildLeft();
}

TEST_F(RunSessionTest, AStopWhileMachinesAreAwaitedNamesNoStep) {
  Script({R"(print {"type":"event","reason":"ExecutorConnected","step":0,"message":"lab is here; 2 of 3 executors"})", "wait-term",
          "exit 130"});
  collector_.on_line = [](LineType type, const report::Run&) {
    if (type == LineType::kEvent) kill(getpid(), SIGTERM);
    return true;
  };
  const auto result = Run();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit_code, kExitInterrupted);
  EXPECT_THAT(collector_.notices, ::testing::Contains("stopping before the first step; interrupt once more to end at once"));
  ExpectNoChildLeft();
}

TEST_F(RunSessionTest, AStopThatWaitsForAnotherSiteSaysSo) {
  Script({kStep1, R"(print {"type":"event","reason":"CollectingShards","step":1,"message":"9 bytes of step-1"})", "wait-term",
          "wait " + folder_ / "go", kSummary, "exit 130"});
  options_.stop_reminder_s = 0.01;
  collector_.on_line = [](LineType type, const report::Run&) {
    if (type == LineType::kEvent) kill(getpid(), SIGTERM);
    return true;
  };
  collector_.on_notice = [&](absl::string_view sentence) {
    if (absl::StrContains(sentence, "still waiting")) folder_.Write("go", "");
  };
  const auto result = Run();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit_code, kExitInterrupted);
  EXPECT_THAT(collector_.notices, ElementsAre(HasSubstr("stopping after this step"), HasSubstr("in other sites (9 bytes of step-1)")));
  ExpectNoChildLeft();
}

// All steps are made and saved: there is none to stop after, and none to wait for.
TEST_F(RunSessionTest, AStopWhileCheckpointsAreCopiedSaysSo) {
  Script({kStep1, R"(print {"type":"event","reason":"CopyingCheckpoints","step":1,"message":"step-1 to /mnt/copies"})",
          R"(print {"type":"event","reason":"CheckpointCopyFailed","step":1,"message":"no room"})", "wait-term", "wait " + folder_ / "go",
          kSummary, "exit 0"});
  options_.stop_reminder_s = 0.01;
  collector_.on_line = [](LineType type, const report::Run& run) {
    if (type == LineType::kEvent && run.events.size() == 2) kill(getpid(), SIGTERM);
    return true;
  };
  collector_.on_notice = [&](absl::string_view sentence) {
    if (absl::StrContains(sentence, "still waiting")) folder_.Write("go", "");
  };
  const auto result = Run();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(collector_.notices, ElementsAre(HasSubstr("the run ends when its checkpoints are copied (step-1 to /mnt/copies)"),
                                              HasSubstr("still waiting: the run ends when its checkpoints are copied (step-1")));
  ExpectNoChildLeft();
}

TEST_F(RunSessionTest, TheSecondInterruptEndsAtOnce) {
  Script({kStep1, "wait-term", kStep2, "wait /nonexistent/never"});
  options_.termination_grace_s = 1000;  // waiting would hang the test
  collector_.on_line = [](LineType, const report::Run&) {
    kill(getpid(), SIGINT);
    return true;
  };
  const auto result = Run();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit_code, kExitInterrupted);
  ExpectNoChildLeft();
}

TEST_F(RunSessionTest, TimeThatIsUpIsNoInterrupt) {
  Script({kStep1, "wait-term", kStep2, kSummary, "exit 130"});
  options_.stop_after_s = 0.01;
  const auto result = Run();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit_code, kExitDone);
  EXPECT_TRUE(result->time_limit_reached);
  ExpectNoChildLeft();
}

TEST_F(RunSessionTest, AReaderThatWentAwayStopsTheRun) {
  Script({kStep1, "wait-term", "exit 130"});
  collector_.on_line = [](LineType, const report::Run&) { return false; };
  const auto result = Run();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit_code, kExitInterrupted);
  ExpectNoChildLeft();
}

TEST_F(RunSessionTest, AnExecutorThatWillNotGoIsKilled) {
  Script({"wait " + script_ + ".stubborn-executor.calls", "exit 0"});
  options_.executor[1] = "stubborn-executor";
  options_.executors = {{"a", false}};
  options_.termination_grace_s = 0.05;
  const auto result = Run();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit_code, 0);
  ExpectNoChildLeft();
}

}  // namespace
}  // namespace fusionllm::cli
