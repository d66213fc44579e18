#include "operator/cache/termination_message.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace fusionllm::op::cache {
namespace {

constexpr char kStarted[] = "2026-11-27T15:51:56.665Z info fusion-executor: computing on the CPU\n";
constexpr char kServes[] = "metrics on http://HOST:PORT/metrics\n";

TEST(TerminationMessage, ThatAProgramWroteIsTakenAsItIs) {
  EXPECT_EQ(TerminationSummary("asked to end: stage 0 on east-0: no such key"), "asked to end: stage 0 on east-0: no such key");
  EXPECT_EQ(TerminationSummary(R"({"exit_code":3,"error":"needs 8 GiB"})"), R"({"exit_code":3,"error":"needs 8 GiB"})");
  EXPECT_EQ(TerminationSummary(""), "");
}

TEST(TerminationMessage, OfALogIsItsLastWarningOrErrorWithoutTimeAndProgram) {
  const std::string log = absl::StrCat(kStarted, kServes, "2026-11-27T15:51:58.000Z warning fusion-executor: no metrics of the card\n",
                                       "2026-11-27T15:52:04.381Z error fusion-executor: the disk is full: /data\n",
                                       "2026-11-27T15:52:05.000Z info fusion-executor: stopping\n");
  EXPECT_EQ(TerminationSummary(log), "the disk is full: /data");
}

TEST(TerminationMessage, OfALogOfJsonIsTheMessageOfItsLastWarningOrError) {
  EXPECT_EQ(
      TerminationSummary("e\":\"of a line that was cut\"}\n"
                         R"({"time":"2026-11-27T15:52:04.381Z","level":"error","program":"fusion-broker","message":"the disk is full"})"
                         "\n"
                         R"({"type":"step","step":7})"),
      "the disk is full");
  EXPECT_EQ(TerminationSummary(R"({"type":"error","code":"NOT_FOUND","reason":"","message":"no such bucket"})"), "no such bucket");
}

TEST(TerminationMessage, OfALogWithoutAWarningIsNone) {
  EXPECT_EQ(TerminationSummary(absl::StrCat(kStarted, kStarted)), "");
  EXPECT_EQ(TerminationSummary(absl::StrCat(kServes, kStarted)), "");
  EXPECT_EQ(TerminationSummary(R"({"type":"event","reason":"CheckpointSaved","message":"saved step 20"})"), "");
}

TEST(TerminationMessage, OfACrashIsWhatStandsBehindTheLog) {
  const std::string crash = "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc\n";
  EXPECT_EQ(TerminationSummary(absl::StrCat(kStarted, crash)), "what():  std::bad_alloc");
  EXPECT_EQ(TerminationSummary(crash), "what():  std::bad_alloc");
}

}  // namespace
}  // namespace fusionllm::op::cache
