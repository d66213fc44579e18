#include "services/broker/final_report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

namespace fusionllm::services {
namespace {

using nlohmann::json;

TEST(FinalReportTest, IsThePageAndHowItEnded) {
  const json report =
      json::parse(FinalReport(R"({"step":7,"checkpoint_step":7,"stages":["a"],"links":[{"src":"a"}],"events":[{"number":7}],"waiting":{}})",
                              3, {.status = absl::InternalError("no room"), .refusal_reason = "InsufficientMemory"}));
  EXPECT_EQ(report, json::parse(R"({"step":7,"checkpoint_step":7,"stages":["a"],"exit_code":3,"error":"no room",
                                    "reason":"InsufficientMemory"})"));
}

// 2 ends a job in a cluster, which starts the broker again after 1 (operator/lifecycle/failure.cc).
TEST(FinalReportTest, WhatAnotherStartDoesNotMendEndsTheJob) {
  const auto set_up = [](absl::StatusCode code, bool resume_journal) { return ExitCodeOfSetUp(absl::Status(code, "x"), resume_journal); };
  for (const bool resume_journal : {false, true}) {
    for (const auto code :
         {absl::StatusCode::kPermissionDenied, absl::StatusCode::kUnauthenticated, absl::StatusCode::kFailedPrecondition}) {
      EXPECT_EQ(set_up(code, resume_journal), 2) << absl::StatusCodeToString(code) << " " << resume_journal;
    }
    for (const auto code : {absl::StatusCode::kUnavailable, absl::StatusCode::kResourceExhausted}) {
      EXPECT_EQ(set_up(code, resume_journal), 1) << absl::StatusCodeToString(code) << " " << resume_journal;
    }
    for (const auto code : {absl::StatusCode::kNotFound, absl::StatusCode::kInvalidArgument}) {
      EXPECT_EQ(set_up(code, resume_journal), resume_journal ? 1 : 2) << absl::StatusCodeToString(code) << " lost under the run";
    }
  }
  const auto run = [](absl::StatusCode code) { return ExitCodeOf({.status = absl::Status(code, "x")}); };
  for (const auto code : {absl::StatusCode::kPermissionDenied, absl::StatusCode::kInvalidArgument, absl::StatusCode::kNotFound}) {
    EXPECT_EQ(run(code), 2) << absl::StatusCodeToString(code);
  }
  for (const auto code : {absl::StatusCode::kUnavailable, absl::StatusCode::kInternal, absl::StatusCode::kFailedPrecondition}) {
    EXPECT_EQ(run(code), 1) << absl::StatusCodeToString(code);
  }
}

// A kubelet cuts it off, and the status would not hear of the last checkpoint.
TEST(FinalReportTest, OfALargeRunItStillFitsAndTellsOfTheLastCheckpoint) {
  json page = {{"step", 72}, {"steps", 100}, {"checkpoint_step", 72}, {"loss", 2.5}, {"links", json::array()}, {"stages", json::array()}};
  for (int i = 0; i < 128; ++i) {
    const std::string name = absl::StrCat("a-cluster-with-a-name-that-is-long-", i);
    page["stages"].push_back(name);
    page["links"].push_back({{"src", name}, {"dst", name}, {"bandwidth_bytes_per_second", 1.5e6}, {"rtt_seconds", 0.04}});
  }
  page["slowest_link"] = {{"src", std::string(2000, 's')}, {"dst", std::string(2000, 'd')}};
  for (const char character : {'x', '\x01', '\xff'}) {
    const std::string text = FinalReport(page.dump(), 1, {.status = absl::InternalError(std::string(100'000, character))});
    EXPECT_LT(text.size(), kMaxReportBytes);
    const json report = json::parse(text, nullptr, /*allow_exceptions=*/false);
    ASSERT_TRUE(report.is_object()) << text;
    EXPECT_EQ(report["checkpoint_step"], 72);
    EXPECT_EQ(report["step"], 72);
    EXPECT_EQ(report["exit_code"], 1);
  }
}

}  // namespace
}  // namespace fusionllm::services
