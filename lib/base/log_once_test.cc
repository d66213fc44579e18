#include "lib/base/log_once.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fusionllm::base {
namespace {

TEST(LogOnceTest, WhatManyWouldSayIsSaidOnce) {
  StartLog("probe", LogLevel::kInfo);
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) {
    LogOnce(LogLevel::kWarning, "so it is");
    LogOnce(LogLevel::kInfo, "so it is not");
    LogOnce(LogLevel::kDebug, "nobody asked");
  }
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, ::testing::MatchesRegex("[^\n]* warning probe: so it is\n[^\n]* info probe: so it is not\n"));
}

}  // namespace
}  // namespace fusionllm::base
