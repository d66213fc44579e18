#include "lib/base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "lib/base/log_context.h"

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
      EXPECT_EQ(IsLogged(static_cast<LogLevel>(level)), level >= least);
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

TEST(LogTest, WhatATerminalWouldObeyIsShownInstead) {
  const std::pair<std::string, std::string> cases[] = {
      {"\x1b[2Jgone\x07\x7f", "\\x1b[2Jgone\\x07\\x7f"},
      {std::string("a\0b\t", 4), "a\\x00b\\t"},
      {"caf\xc3\xa9 \xe6\x97\xa5 \xf0\x9f\x99\x82", "caf\xc3\xa9 \xe6\x97\xa5 \xf0\x9f\x99\x82"},
      {"\xc2\x9b"
       "2J\xc2\xa0",
       "\\xc2\\x9b"
       "2J\xc2\xa0"},
      {"\x9b"
       "2J \xff \xc3",
       "\\x9b"
       "2J \\xff \\xc3"},
      {"\xe6\x97!", "\\xe6\\x97!"},
      {"\xc0\x8a", "\\xc0\\x8a"}};
  StartLog("probe", LogLevel::kInfo);
  for (const auto& [sentence, shown] : cases) {
    testing::internal::CaptureStderr();
    Log(LogLevel::kInfo, sentence);
    EXPECT_THAT(testing::internal::GetCapturedStderr(), ::testing::EndsWith(" info probe: " + shown + "\n"));
  }
}

std::string JsonLogged(const std::string& sentence) {
  StartLog("probe", LogLevel::kInfo, LogFormat::kJson);
  testing::internal::CaptureStderr();
  Log(LogLevel::kWarning, sentence);
  std::string text = testing::internal::GetCapturedStderr();
  StartLog("probe", LogLevel::kInfo);
  return text;
}

TEST(LogTest, ALineOfJsonIsOneObjectWhateverIsSaid) {
  for (const std::string sentence : {"plain", "a \"quoted\" one\n{\"level\":\"error\"}", "\xff\xfe", "tab\t, null \x01"}) {
    const std::string text = JsonLogged(sentence);
    EXPECT_EQ(text.find('\n'), text.size() - 1) << text;
    const nlohmann::json line = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
    ASSERT_TRUE(line.is_object()) << text;
    EXPECT_EQ(line["level"], "warning");
    EXPECT_EQ(line["program"], "probe");
    EXPECT_THAT(line["time"].get<std::string>(), MatchesRegex("[0-9-]+T[0-9:]+[.][0-9]+Z"));
    if (sentence[0] != '\xff') {
      EXPECT_EQ(line["message"], sentence);
    }
    EXPECT_EQ(line.size(), 4);
  }
}

TEST(LogTest, LinesOfJsonSayWhatTheyBelongTo) {
  const auto parse = [] { return nlohmann::json::parse(JsonLogged("x"), nullptr, /*allow_exceptions=*/false); };
  const LogContext outer({{"cluster", "paris"}, {"reconcileID", "1"}});
  {
    const LogContext inner({{"job", "team/train"}, {"reconcileID", "2"}});
    const nlohmann::json line = parse();
    EXPECT_EQ(line["cluster"], "paris");
    EXPECT_EQ(line["job"], "team/train");
    EXPECT_EQ(line["reconcileID"], "2");
  }
  const nlohmann::json line = parse();
  EXPECT_FALSE(line.contains("job"));
  EXPECT_EQ(line["reconcileID"], "1");
  LogFields elsewhere = {{"not", "asked"}};
  std::thread([&] { elsewhere = LogContext::Current(); }).join();
  EXPECT_TRUE(elsewhere.empty()) << "of its own thread alone";
}

TEST(LogTest, TheLevelCanChange) {
  StartLog("probe", LogLevel::kInfo);
  SetLogLevel(LogLevel::kDebug);
  EXPECT_TRUE(IsLogged(LogLevel::kDebug));
}

TEST(LogTest, LevelsAndFormatsHaveTheirNames) {
  for (const LogFormat format : {LogFormat::kText, LogFormat::kJson}) EXPECT_EQ(ParseLogFormat(Name(format)), format);
  EXPECT_EQ(ParseLogFormat("xml"), std::nullopt);
  for (const LogLevel level : {LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarning, LogLevel::kError}) {
    EXPECT_EQ(ParseLogLevel(Name(level)), level);
  }
  EXPECT_EQ(ParseLogLevel("loud"), std::nullopt);
  EXPECT_EQ(ParseLogLevel(""), std::nullopt);
}

}  // namespace
}  // namespace fusionllm::base
