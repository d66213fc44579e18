// A session with a stand-in for the programs (testing/fake_service.cc). The test adopts orphans (PR_SET_CHILD_SUBREAPER), so "no process is
// left" is exact: waitpid says that there is no child any more.
#pragma once

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cli/run/run_session.h"
#include "lib/base/testing/temp_folder.h"

namespace fusionllm::cli {

inline constexpr char kStep1[] = R"(print {"type":"step","step":1,"loss":5.5,"step_seconds":0.5,"tokens_per_second":100})";
inline constexpr char kStep2[] = R"(print {"type":"step","step":2,"loss":5.25,"step_seconds":0.5,"tokens_per_second":100})";
inline constexpr char kSummary[] = R"(print {"type":"summary","steps":2,"final_loss":5.25,"links":[],"stages":[]})";

// Long enough for any machine; a condition that takes longer does not come.
inline constexpr auto kTestTimeout = std::chrono::seconds(60);

// Polls for something that other processes bring about. False, and a sentence on stderr, when it does not come in time.
inline bool ComesTrue(const char* what, const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + kTestTimeout;
  while (!condition()) {
    if (std::chrono::steady_clock::now() >= deadline) {
      std::fprintf(stderr, "waited in vain until %s\n", what);
      return false;
    }
    usleep(1000);  // tidy-allow: sleep because another process is polled for a condition
  }
  return true;
}

class Collector : public SessionObserver {
 public:
  bool OnLine(LineType type, absl::string_view line, const report::Run& run) override {
    types.push_back(type);
    lines.emplace_back(line);
    return on_line ? on_line(type, run) : true;
  }
  void OnNotice(absl::string_view sentence) override {
    notices.emplace_back(sentence);
    if (on_notice) on_notice(sentence);
  }
  void OnLog(base::LogLevel level, absl::string_view sentence) override {
    logged.push_back(absl::StrCat(base::Name(level), " ", sentence));
  }
  void OnListening(absl::string_view where) override { address = std::string(where); }

  std::function<bool(LineType, const report::Run&)> on_line;
  std::function<void(absl::string_view)> on_notice;
  std::vector<LineType> types;
  std::vector<std::string> lines;
  std::vector<std::string> notices, logged;
  std::string address;
};

class RunSessionTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { prctl(PR_SET_CHILD_SUBREAPER, 1); }

  RunSessionTest() {
    for (const char* name : {"logs", "security"}) std::filesystem::create_directories(folder_ / name);
    options_.scheduler = {FAKE_SERVICE, "scheduler", script_};
    options_.broker = {FAKE_SERVICE, "broker", script_};
    options_.executor = {FAKE_SERVICE, "executor", script_};
    options_.output = folder_.path();
    options_.base = "/";
    options_.executors = {{"a", false}, {"b", true}};
  }

  void Script(const std::vector<std::string>& lines) {
    std::string text;
    for (const std::string& line : lines) absl::StrAppend(&text, line, "\n");
    folder_.Write("script", text);
  }

  absl::StatusOr<SessionResult> Run() {
    SignalWatch signals;
    return RunSession(options_, signals, collector_, run_);
  }

  std::vector<std::string> Calls(absl::string_view role) {
    return absl::StrSplit(base::ReadWholeFile(absl::StrCat(script_, ".", role, ".calls")), '\n', absl::SkipEmpty());
  }

  // Pids in the order in which the programs were started.
  std::vector<std::string> Pids() const { return absl::StrSplit(base::ReadWholeFile(script_ + ".pids"), '\n', absl::SkipEmpty()); }

  // A process beside the run: when `condition` holds it does `then`. The file "go" is written in any case, so that the run ends and
  // ExpectHelperSucceeded tells what was missing.
  void StartHelper(
      const char* what, const std::function<bool()>& condition, const std::function<void()>& then = [] {}) {
    helper_ = fork();
    if (helper_ != 0) return;
    const bool came = ComesTrue(what, condition);
    if (came) then();
    folder_.Write("go", "");
    _exit(came ? 0 : 1);
  }

  void ExpectHelperSucceeded() {
    int status = -1;
    ASSERT_EQ(waitpid(helper_, &status, 0), helper_);
    EXPECT_EQ(status, 0) << "the helper waited in vain, see stderr";
  }

  static void ExpectNoChildLeft() {
    errno = 0;
    EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
    EXPECT_EQ(errno, ECHILD);
  }

  base::TempFolder folder_;
  const std::string script_ = folder_ / "script";
  SessionOptions options_;
  Collector collector_;
  report::Run run_;
  pid_t helper_ = -1;
};

}  // namespace fusionllm::cli
