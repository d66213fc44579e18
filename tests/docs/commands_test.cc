// The commands that pages tell a reader to type are run, page by page, each page in an empty folder with our programs on the PATH.
// What needs a cluster, a GPU, other machines or the network has a second word behind ```bash and is left out.
#include <algorithm>
#include <cctype>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cli/run/child_process.h"
#include "gtest/gtest.h"
#include "lib/base/testing/temp_folder.h"
#include "tests/docs/page_checks.h"

namespace fusionllm::docs {
namespace {

using Clock = std::chrono::steady_clock;
using cli::ChildProcess;
using cli::ExitStatus;

constexpr auto kPageLimit = std::chrono::seconds(600);  // of one page, built for speed or with sanitizers, on a busy machine

// The repository; ctest sets the variable (cmake/Targets).
std::filesystem::path SourceDir() {
  const char* folder = std::getenv("FUSIONLLM_SOURCE_DIR");
  return folder == nullptr ? "." : folder;
}

std::string ScriptOfPage(const std::string& path) { return ScriptOf({path, base::ReadWholeFile((SourceDir() / path).string())}); }

// Those with something to run.
std::vector<std::string> Pages() {
  std::vector<std::string> pages = {"README.md"};
  for (const char* folder : {"docs/start", "docs/tasks"}) {
    std::error_code error;
    for (std::filesystem::directory_iterator entry(SourceDir() / folder, error), end; !error && entry != end; entry.increment(error)) {
      if (entry->path().extension() == ".md") pages.push_back(absl::StrCat(folder, "/", entry->path().filename().string()));
    }
  }
  std::erase_if(pages, [](const std::string& page) { return ScriptOfPage(page).empty(); });
  std::sort(pages.begin(), pages.end());
  return pages;
}

// nullopt: it still runs when the time is over. SIGCHLD is blocked since before the child began, so that no end is missed.
std::optional<ExitStatus> WaitFor(ChildProcess& child, Clock::duration limit) {
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGCHLD);
  const Clock::time_point deadline = Clock::now() + limit;
  while (!child.Poll().has_value()) {
    const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(deadline - Clock::now()).count();
    if (left <= 0) return std::nullopt;
    const timespec wait = {static_cast<time_t>(left / 1'000'000'000), static_cast<long>(left % 1'000'000'000)};
    sigtimedwait(&ends, nullptr, &wait);
  }
  return child.Poll();
}

class CommandsTest : public ::testing::TestWithParam<std::string> {
 protected:
  static void SetUpTestSuite() {
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGCHLD);
    sigprocmask(SIG_BLOCK, &ends, nullptr);
    const char *programs = std::getenv("FUSIONLLM_BIN_DIR"), *path = std::getenv("PATH");
    ASSERT_NE(programs, nullptr) << "set FUSIONLLM_BIN_DIR to the folder of the programs (ctest does)";
    setenv("PATH", absl::StrCat(programs, ":", path == nullptr ? "/usr/bin:/bin" : path).c_str(), /*overwrite=*/1);
  }
};

TEST_P(CommandsTest, RunInTheOrderOfThePage) {
  const base::TempFolder folder;
  std::filesystem::create_directory(folder / "empty");
  const std::string script = folder.Write("page.sh", ScriptOfPage(GetParam())), output = folder / "output.txt";
  absl::StatusOr<ChildProcess> child =
      ChildProcess::Start({.name = GetParam(),
                           .argv = {"/bin/bash", "-c", "cd \"$1\" && exec /bin/bash \"$2\"", "page", folder / "empty", script},
                           .log_path = output});
  ASSERT_TRUE(child.ok()) << child.status();
  const std::optional<ExitStatus> end = WaitFor(*child, kPageLimit);
  if (!end.has_value()) {
    kill(-child->pid(), SIGKILL);  // the shell's group, and so fusionctl, whose processes end with it
    FAIL() << GetParam() << " is not over after " << kPageLimit.count() << " s; it printed\n" << base::ReadWholeFile(output);
  }
  EXPECT_TRUE(end->exit_code == 0) << GetParam() << ": " << cli::Describe(*end) << "; it printed\n" << base::ReadWholeFile(output);
}

INSTANTIATE_TEST_SUITE_P(Pages, CommandsTest, ::testing::ValuesIn(Pages()), [](const auto& info) {
  std::string name = info.param;
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
});

}  // namespace
}  // namespace fusionllm::docs
