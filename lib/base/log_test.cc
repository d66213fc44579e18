#include "lib/base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fusionllm::base {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

std::string Logged(LogLevel least) {
  StartLog("probe", least);
  testing::internal::CaptureStderr();
  Log(LogLevel::kDebug, "a debug line");
  Log(LogLevel::kInfo, "an info line");
  Log(LogLevel::kWarning, "a warning line");
  Log(LogLevel::kError, "an error line");
  return testing::internal::GetCapturedStderr();
}

TEST(LogTest, LinesBelowTheLevelAreNotWritten) {
  const char* lines[] = {"debug probe: a debug line\n", "info probe: an info line\n", "warning probe: a warning line\n",
                         "error probe: an error line\n"};
  for (int least = 0; least < 4; ++least) {
    const std::string text = Logged(static_cast<LogLevel>(least));
    for (int level = 0; level < 4; ++level) {
      EXPECT_EQ(text.find(lines[level]) != std::string::npos, level >= least) << text;
      EXPECT_EQ(Logs(static_cast<LogLevel>(level)), level >= least);
    }
  }
}

TEST(LogTest, ALineIsALineWhateverIsSaid) {
  StartLog("probe", LogLevel::kInfo);
  testing::internal::CaptureStderr();
  Log(LogLevel::kInfo, "one\n2026-01-01T00:00:00.000Z error probe: forged\r");
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_EQ(text.find('\n'), text.size() - 1);
  EXPECT_THAT(text, MatchesRegex("[0-9-]+T[0-9:.]+Z info probe: one.*\n"));
  EXPECT_THAT(text, Not(HasSubstr("\r")));
}

TEST(LogTest, LevelsHaveTheirNames) {
  for (const LogLevel level : {LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarning, LogLevel::kError}) {
    EXPECT_EQ(ParseLogLevel(Name(level)), level);
  }
  EXPECT_EQ(ParseLogLevel("loud"), std::nullopt);
  EXPECT_EQ(ParseLogLevel(""), std::nullopt);
}

}  // namespace
}  // namespace fusionllm::base
