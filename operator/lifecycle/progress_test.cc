#include "operator/lifecycle/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/job/fusion_job.h"

namespace fusionllm::op::lifecycle {
namespace {

TEST(ProgressTest, ReadsWhatTheBrokerTells) {
  const auto progress = ParseProgress(R"({"phase":"running","step":20,"steps":100,"loss":2.5,"epoch":2,"stages":["a","b"],
      "executors":3,"plan_executors":2,"wanted_executors":3,"eta_seconds":36.5,"step_seconds":0.45,"predicted_step_seconds":0.4,"tokens_per_second":8192,"checkpoint_step":10,"recoveries":1,
      "slowest_link":{"src":"a","dst":"b","codec":"int8","bandwidth_bytes_per_second":1250000.0}})");
  ASSERT_TRUE(progress.ok()) << progress.status();
  EXPECT_EQ(progress->step, 20);
  EXPECT_EQ(progress->loss, 2.5);
  EXPECT_EQ(progress->stages, 2);
  EXPECT_EQ(progress->plan_executors, 2);
  EXPECT_EQ(progress->wanted_executors, 3);
  EXPECT_EQ(progress->checkpoint_step, 10);
  EXPECT_EQ(progress->slowest_link, "a->b int8 1.2 MB/s");
  EXPECT_FALSE(progress->exit_code.has_value());
}

TEST(ProgressTest, ReadsWhatTheRunWaitsFor) {
  const auto progress = ParseProgress(R"({"step":0,"waiting":{"reason":"ProbeFailed","message":"a cannot\nreach b"}})");
  ASSERT_TRUE(progress.ok()) << progress.status();
  EXPECT_EQ(progress->wait_reason, "ProbeFailed");
  EXPECT_EQ(progress->wait, "a cannot\\nreach b");
  for (const char* waiting : {R"({"reason":"Complete","message":"x"})", R"({"reason":"not a reason","message":"x"})", "[]", "3", "null"}) {
    const auto other = ParseProgress(absl::StrCat(R"({"waiting":)", waiting, "}"));
    ASSERT_TRUE(other.ok()) << other.status();
    EXPECT_EQ(*other, Progress{}) << waiting;
  }
}

TEST(ProgressTest, CountsStagesAndReplicas) {
  struct Case {
    const char* stages;
    int expected, replicas;
  };
  for (const Case& c : {Case{R"([["a","b","c"],["d","e","f"]])", 2, 3}, Case{R"(["a","b"])", 2, 1}, Case{"[]", 0, 1}, Case{"[[]]", 1, 1}}) {
    const auto progress = ParseProgress(absl::StrCat(R"({"step":1,"stages":)", c.stages, "}"));
    ASSERT_TRUE(progress.ok()) << progress.status();
    EXPECT_EQ(progress->stages, c.expected) << c.stages;
    EXPECT_EQ(progress->replicas, c.replicas) << c.stages;
  }
}

TEST(ProgressTest, ThePageOfTheLargestRunIsRead) {
  const std::string longest = absl::StrCat("\"", std::string(63, 'x'), "\"");
  const auto progress =
      ParseProgress(absl::StrCat("{\"stages\":[", absl::StrJoin(std::vector<std::string>(job::kMaxExecutors, longest), ","), "]}"));
  ASSERT_TRUE(progress.ok()) << progress.status();
  EXPECT_EQ(progress->stages, job::kMaxExecutors);

  // A status with more would be refused as a whole.
  const auto more = ParseProgress(absl::StrCat("{\"stages\":[", absl::StrJoin(std::vector<int>(job::kMaxExecutors + 1), ","), "]}"));
  ASSERT_TRUE(more.ok()) << more.status();
  EXPECT_EQ(more->stages, job::kMaxExecutors);
}

TEST(ProgressTest, ReadsTheReportOfARunThatFailed) {
  const auto progress = ParseProgress(R"({"step":0,"exit_code":3,"reason":"InsufficientMemory","error":"stage 1 needs 8 GiB"})");
  ASSERT_TRUE(progress.ok());
  EXPECT_EQ(progress->exit_code, 3);
  EXPECT_EQ(progress->reason, "InsufficientMemory");
}

TEST(ProgressTest, AHostilePageChangesNothingElse) {
  for (const char* text : {"", "[]", "null", "{", "\x01\x02"}) EXPECT_FALSE(ParseProgress(text).ok()) << text;
  EXPECT_FALSE(ParseProgress(std::string(kMaxProgressBytes + 1, ' ')).ok());
  const auto progress = ParseProgress(R"({"step":"x","loss":"y","stages":3,"slowest_link":[],"phase":{},"eta_seconds":null})");
  ASSERT_TRUE(progress.ok()) << progress.status();
  EXPECT_EQ(*progress, Progress{});
  const auto long_text = ParseProgress("{\"error\":\"" + std::string(5000, 'x') + "\"}");
  ASSERT_TRUE(long_text.ok());
  EXPECT_EQ(long_text->error.size(), 1024);
}

}  // namespace
}  // namespace fusionllm::op::lifecycle
