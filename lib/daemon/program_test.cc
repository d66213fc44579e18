#include "lib/daemon/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "absl/strings/str_cat.h"
#include "lib/daemon/testing/http_get.h"

namespace fusionllm::daemon {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct Parsed {
  std::optional<int> code;
  CommonFlags flags;
  std::string out, err;
};

Parsed Parse(std::vector<std::string> arguments) {
  Parsed parsed;
  arguments.insert(arguments.begin(), "probe");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  CLI::App app("A program");
  AddCommonFlags(app, "probe", "1.2.3", parsed.flags);
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  parsed.code = ParseFlags(app, static_cast<int>(argv.size()), argv.data(), "probe", parsed.flags);
  parsed.out = testing::internal::GetCapturedStdout();
  parsed.err = testing::internal::GetCapturedStderr();
  return parsed;
}

TEST(ProgramTest, FlagsHaveDefaults) {
  const Parsed parsed = Parse({});
  EXPECT_EQ(parsed.code, std::nullopt);
  EXPECT_EQ(parsed.flags.metrics_address, "127.0.0.1:0");
  EXPECT_FALSE(base::IsLogged(base::LogLevel::kDebug));
  EXPECT_TRUE(base::IsLogged(base::LogLevel::kInfo));
  EXPECT_EQ(Parse({"--log-level", "error"}).code, std::nullopt);
  EXPECT_FALSE(base::IsLogged(base::LogLevel::kWarning));
}

TEST(ProgramTest, LinesAreOfTheFormatAskedFor) {
  EXPECT_EQ(Parse({"--log-format", "json"}).code, std::nullopt);
  testing::internal::CaptureStderr();
  base::Log(base::LogLevel::kInfo, "a line");
  EXPECT_THAT(testing::internal::GetCapturedStderr(), ::testing::StartsWith("{\"time\":"));
  EXPECT_EQ(Parse({}).code, std::nullopt);
  const Parsed xml = Parse({"--log-format", "xml"});
  EXPECT_EQ(xml.code, kExitBadInput);
  EXPECT_THAT(xml.err, AllOf(HasSubstr("--log-format"), HasSubstr("xml")));
}

TEST(ProgramTest, BadUsageIsExitCodeTwoAndNamesTheFlag) {
  const Parsed level = Parse({"--log-level", "loud"});
  EXPECT_EQ(level.code, kExitBadInput);
  EXPECT_THAT(level.err, AllOf(HasSubstr("--log-level"), HasSubstr("loud")));
  const Parsed unknown = Parse({"--colour", "red"});
  EXPECT_EQ(unknown.code, kExitBadInput);
  EXPECT_THAT(unknown.err, HasSubstr("--colour"));
}

TEST(ProgramTest, SecondsAreFiniteAndNoMoreThanAClockCanCount) {
  for (const char* text : {"0", "0.5", "300", "1e9"}) EXPECT_EQ(CheckSeconds(text), "") << text;
  for (const char* text : {"", "soon", "nan", "NaN", "-nan", "inf", "-inf", "infinity", "1e999", "1e10", "-1", "5s"}) {
    EXPECT_EQ(CheckSeconds(text), absl::StrCat("'", text, "' is not a number of seconds from 0 to 1000000000"));
  }
}

TEST(ProgramTest, HelpAndVersionAreNoErrors) {
  const Parsed version = Parse({"--version"});
  EXPECT_EQ(version.code, kExitDone);
  EXPECT_THAT(version.out, HasSubstr("probe 1.2.3"));
  const Parsed help = Parse({"--help"});
  EXPECT_EQ(help.code, kExitDone);
  EXPECT_THAT(help.out, HasSubstr("--metrics-address"));
}

TEST(ProgramTest, MonitoringServesTheRegistryAndSaysWhere) {
  metrics::Registry registry("probe", "1.2.3");
  testing::internal::CaptureStdout();
  const auto server = StartMonitoring(
      {}, registry, [] { return absl::OkStatus(); }, [] { return absl::UnavailableError("not yet"); });
  const std::string out = testing::internal::GetCapturedStdout();
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_EQ(out, absl::StrCat("metrics on http://", (*server)->address(), "/metrics\n"));
  EXPECT_THAT(HttpGet((*server)->address(), "/metrics").body, HasSubstr("fusionllm_build_info{"));
  EXPECT_EQ(HttpGet((*server)->address(), "/readyz").code, 503);
  const auto second = StartMonitoring({.metrics_address = (*server)->address()}, registry, nullptr, nullptr);
  EXPECT_THAT(std::string(second.status().message()),
              AllOf(HasSubstr("--metrics-address"), HasSubstr((*server)->address()), HasSubstr("in use")));
}

TEST(ProgramTest, MonitoringCanBeOff) {
  metrics::Registry registry("probe", "1.2.3");
  const auto server = StartMonitoring({.metrics_address = "off"}, registry, nullptr, nullptr);
  ASSERT_TRUE(server.ok());
  EXPECT_EQ(*server, nullptr);
}

// As gRPC's threads do that have never begun.
struct NeverDestroyed {
  ~NeverDestroyed() {
    while (true) pause();
  }
};

TEST(ProgramTest, FailedStartExitsImmediately) {
  EXPECT_EXIT(
      {
        const NeverDestroyed library;
        base::StartLog("probe", base::LogLevel::kInfo);
        ExitImmediately(absl::UnavailableError("no threads"));
      },
      ::testing::ExitedWithCode(kExitFailed), "error probe: no threads");
}

TEST(ProgramTest, ReportsThreadCreationFailure) {
  const auto start = [](const auto& thrown) {
    CLI::App app;
    CommonFlags flags;
    std::string name = "probe";
    char* argv[] = {name.data()};
    AddCommonFlags(app, name, "1", flags);
    (void)ParseFlags(app, 1, argv, name, flags);
    const NeverDestroyed library;
    std::thread([&]() -> void { throw thrown; }).join();
  };
  const std::system_error no_thread(std::make_error_code(std::errc::resource_unavailable_try_again));
  EXPECT_EXIT(start(no_thread), ::testing::ExitedWithCode(kExitFailed),
              "error probe: cannot start a thread: the system refuses more threads and processes .*ulimit -u");
  EXPECT_EXIT(start(std::logic_error("ours")), ::testing::KilledBySignal(SIGABRT), "");
  const std::system_error joined_itself(std::make_error_code(std::errc::operation_not_permitted));
  EXPECT_EXIT(start(joined_itself), ::testing::KilledBySignal(SIGABRT), "");
}

TEST(ProgramTest, AnAddressForMetricsIsCheckedWithTheFlags) {
  for (const char* good : {"off", "127.0.0.1:0", "[::1]:0", "[::]:0"})
    EXPECT_EQ(Parse({"--metrics-address", good}).code, std::nullopt) << good;
  for (const char* bad : {"localhost:0", "everywhere", "127.0.0.1", "lab:0", ":0", "Off"}) {
    const Parsed parsed = Parse({"--metrics-address", bad});
    EXPECT_EQ(parsed.code, kExitBadInput) << bad;
    EXPECT_THAT(parsed.err, AllOf(HasSubstr("--metrics-address"), HasSubstr(bad)));
  }
}

}  // namespace
}  // namespace fusionllm::daemon
