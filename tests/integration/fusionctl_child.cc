#include "tests/integration/fusionctl_child.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "lib/base/testing/temp_folder.h"

namespace fusionllm::integration {
namespace {

using Clock = std::chrono::steady_clock;

Clock::time_point After(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

double Left(Clock::time_point deadline) { return std::max(0.0, std::chrono::duration<double>(deadline - Clock::now()).count()); }

[[noreturn]] void Die(const char* what) {
  std::perror(what);
  std::abort();
}

// Parent and program name of a process, from /proc/PID/stat: "PID (name) state parent ...". The kernel cuts names at 15 characters.
bool IsChild(const std::string& pid, pid_t parent, const std::string& program) {
  const std::string stat = base::ReadWholeFile(absl::StrCat("/proc/", pid, "/stat"));
  const size_t open = stat.find('('), close = stat.rfind(')');
  if (open == std::string::npos || close == std::string::npos) return false;
  const std::vector<std::string> rest = absl::StrSplit(stat.substr(close + 1), ' ', absl::SkipEmpty());
  return rest.size() > 1 && rest[0] != "Z" && rest[1] == std::to_string(parent) &&
         stat.substr(open + 1, close - open - 1) == program.substr(0, 15);
}

}  // namespace

FusionctlChild::FusionctlChild(const std::vector<std::string>& arguments, const std::string& folder) : folder_(folder) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  sigset_t child_signal;
  sigemptyset(&child_signal);
  sigaddset(&child_signal, SIGCHLD);
  sigprocmask(SIG_BLOCK, &child_signal, nullptr);  // for sigtimedwait in AllProcessesExited

  const char* bin = std::getenv("FUSIONLLM_BIN_DIR");
  const std::string program = absl::StrCat(bin == nullptr ? "." : bin, "/fusionctl");
  std::vector<char*> argv = {const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  int output[2];
  if (pipe2(output, O_CLOEXEC) != 0) Die("pipe2");
  const std::string errors = folder + "/stderr.txt";
  pid_ = fork();
  if (pid_ < 0) Die("fork");
  if (pid_ == 0) {
    const int err = open(errors.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    sigprocmask(SIG_UNBLOCK, &child_signal, nullptr);
    if (chdir(folder.c_str()) != 0 || dup2(output[1], 1) < 0 || dup2(err, 2) < 0) _exit(127);
    execv(argv[0], argv.data());
    _exit(127);
  }
  close(output[1]);
  out_ = output[0];
  fcntl(out_, F_SETFL, O_NONBLOCK);
}

FusionctlChild::~FusionctlChild() {
  if (!code_.has_value()) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  // Its children follow it by themselves (SIGKILL from the kernel); wait until they have.
  AllProcessesExited(20);
  close(out_);
}

bool FusionctlChild::ReadMore(double limit_s) {
  if (at_end_) return false;
  pollfd fd = {out_, POLLIN, 0};
  const int ready = poll(&fd, 1, static_cast<int>(limit_s * 1000) + 1);
  if (ready <= 0) return ready < 0 && errno == EINTR;
  char buffer[65536];
  const ssize_t got = read(out_, buffer, sizeof buffer);
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  if (got == 0) {
    at_end_ = true;
    return false;
  }
  pending_.append(buffer, static_cast<size_t>(got));
  for (size_t end = pending_.find('\n'); end != std::string::npos; end = pending_.find('\n')) {
    nlohmann::json line = nlohmann::json::parse(pending_.substr(0, end), nullptr, /*allow_exceptions=*/false);
    if (!line.is_object()) line = {{"type", "not json"}, {"text", pending_.substr(0, end)}};
    lines_.push_back(std::move(line));
    pending_.erase(0, end + 1);
  }
  return true;
}

std::optional<nlohmann::json> FusionctlChild::WaitFor(const Wanted& wanted, double limit_s) {
  const Clock::time_point deadline = After(limit_s);
  while (true) {
    while (next_ < lines_.size()) {
      if (wanted(lines_[next_++])) return lines_[next_ - 1];
    }
    if (at_end_ || Clock::now() >= deadline) return std::nullopt;
    ReadMore(Left(deadline));
  }
}

std::optional<nlohmann::json> FusionctlChild::WaitForEvent(const std::string& reason, double limit_s) {
  return WaitFor([&](const nlohmann::json& line) { return line.value("reason", "") == reason; }, limit_s);
}

std::optional<nlohmann::json> FusionctlChild::WaitForStep(int64_t step, double limit_s) {
  return WaitFor([&](const nlohmann::json& line) { return line.value("type", "") == "step" && line.value("step", 0) == step; }, limit_s);
}

int FusionctlChild::Wait(double limit_s) {
  const Clock::time_point deadline = After(limit_s);
  while (!at_end_ && Clock::now() < deadline) ReadMore(Left(deadline));
  if (!at_end_) return -1;
  if (code_.has_value()) return *code_;
  int status = 0;  // its output has ended, so it is going: no limit is needed
  if (waitpid(pid_, &status, 0) != pid_) Die("waitpid");
  code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return *code_;
}

void FusionctlChild::Signal(int signal) {
  if (!code_.has_value()) kill(pid_, signal);
}

std::vector<pid_t> FusionctlChild::Running(const std::string& program) const {
  std::vector<pid_t> found;
  DIR* const proc = opendir("/proc");
  if (proc == nullptr) return found;
  while (const dirent* entry = readdir(proc)) {
    pid_t pid = 0;
    if (absl::SimpleAtoi(entry->d_name, &pid) && IsChild(entry->d_name, pid_, program)) found.push_back(pid);
  }
  closedir(proc);
  return found;
}

bool FusionctlChild::AllProcessesExited(double limit_s) {
  const Clock::time_point deadline = After(limit_s);
  sigset_t child_signal;
  sigemptyset(&child_signal);
  sigaddset(&child_signal, SIGCHLD);
  while (true) {
    const pid_t reaped = waitpid(-1, nullptr, WNOHANG);
    if (reaped < 0 && errno == ECHILD) return true;
    if (reaped > 0) continue;
    const double left = Left(deadline);
    if (left <= 0) return false;
    const timespec timeout = {static_cast<time_t>(left), 1'000'000};
    sigtimedwait(&child_signal, nullptr, &timeout);
  }
}

std::string FusionctlChild::Stderr() const { return base::ReadWholeFile(folder_ + "/stderr.txt"); }

void KillProcess(pid_t pid) {
  if (pid > 1) kill(pid, SIGKILL);
}

}  // namespace fusionllm::integration
