#include "cli/run/child_process.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "lib/base/thread_limit.h"

namespace fusionllm::cli {
namespace {

absl::Status SystemError(absl::string_view what, int error) { return absl::InternalError(absl::StrCat(what, ": ", std::strerror(error))); }

// Whatever this program itself was started with must not reach its children: a descriptor of a pipe would keep its reader waiting.
void CloseAllOnExec() {
  if (close_range(3, ~0U, CLOSE_RANGE_CLOEXEC) == 0) return;
  for (int fd = 3; fd < 4096; ++fd) fcntl(fd, F_SETFD, FD_CLOEXEC);  // kernels before 5.11
}

// Runs in the child between fork and exec: only async-signal-safe calls. Reports errno through `error_pipe` and never returns.
[[noreturn]] void BecomeProgram(char* const* argv, pid_t parent, int log_fd, int stdout_fd, int null_fd, int error_pipe) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);  // the parent ended before the line above took hold
  for (int signal = 1; signal < NSIG; ++signal) std::signal(signal, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  CloseAllOnExec();
  const bool plumbed = dup2(null_fd, 0) >= 0 && dup2(stdout_fd, 1) >= 0 && dup2(log_fd, 2) >= 0;
  if (plumbed) execv(argv[0], argv);
  const int error = errno;
  [[maybe_unused]] const ssize_t written = write(error_pipe, &error, sizeof error);
  _exit(127);
}

}  // namespace

std::string Describe(const ExitStatus& end) {
  if (end.signal) return absl::StrCat("killed by signal ", *end.signal, " (", strsignal(*end.signal), ")");
  return absl::StrCat("exit code ", end.exit_code.value_or(-1));
}

absl::StatusOr<ChildProcess> ChildProcess::Start(const Options& options) {
  if (options.argv.empty()) return absl::InvalidArgumentError(absl::StrCat(options.name, ": no program to start"));
  std::vector<int> open_here;
  const auto close_all = absl::MakeCleanup([&] {
    for (const int fd : open_here) close(fd);
  });
  const auto keep = [&](int fd) {
    if (fd >= 0) open_here.push_back(fd);
    return fd;
  };

  const int null_fd = keep(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (null_fd < 0) return SystemError("cannot open /dev/null", errno);
  const int log_fd = keep(open(options.log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (log_fd < 0) return SystemError(absl::StrCat("cannot write ", options.log_path), errno);
  int error_pipe[2];
  if (pipe2(error_pipe, O_CLOEXEC) != 0) return SystemError("pipe", errno);
  keep(error_pipe[0]);
  int output[2] = {-1, log_fd};
  if (options.pipe_stdout) {
    if (pipe2(output, O_CLOEXEC) != 0) {
      close(error_pipe[1]);
      return SystemError("pipe", errno);
    }
    keep(output[1]);
  }

  std::vector<char*> argv;
  for (const std::string& argument : options.argv) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);

  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) BecomeProgram(argv.data(), parent, log_fd, output[1], null_fd, error_pipe[1]);
  const int fork_error = errno;
  close(error_pipe[1]);
  ChildProcess child;
  child.stdout_fd_ = output[0];
  if (pid < 0 && fork_error == EAGAIN) return absl::ResourceExhaustedError(base::ThreadLimitMessage(options.argv[0]));
  if (pid < 0) return SystemError(absl::StrCat("cannot start ", options.argv[0]), fork_error);
  child.name_ = options.name;
  child.log_path_ = options.log_path;
  child.pid_ = pid;
  setpgid(pid, pid);  // both sides do it, for either may come first

  int error = 0;
  ssize_t got;
  do {
    got = read(error_pipe[0], &error, sizeof error);  // ends when exec closes the other side
  } while (got < 0 && errno == EINTR);
  if (got == sizeof error) {
    child.Reap(/*block=*/true);
    return absl::NotFoundError(absl::StrCat("cannot start ", options.argv[0], ": ", std::strerror(error)));
  }
  if (child.stdout_fd_ >= 0) fcntl(child.stdout_fd_, F_SETFL, O_NONBLOCK);
  return child;
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept { *this = std::move(other); }

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  if (this == &other) return *this;
  Kill();
  CloseStdout();
  name_ = std::move(other.name_);
  log_path_ = std::move(other.log_path_);
  pid_ = std::exchange(other.pid_, -1);
  stdout_fd_ = std::exchange(other.stdout_fd_, -1);
  end_ = other.end_;
  return *this;
}

ChildProcess::~ChildProcess() {
  Kill();
  CloseStdout();
}

void ChildProcess::CloseStdout() {
  if (stdout_fd_ >= 0) close(std::exchange(stdout_fd_, -1));
}

void ChildProcess::Reap(bool block) {
  if (pid_ < 0 || end_) return;
  int status = 0;
  pid_t reaped;
  do {
    reaped = waitpid(pid_, &status, block ? 0 : WNOHANG);
  } while (reaped < 0 && errno == EINTR);
  if (reaped == 0) return;
  ExitStatus end;
  if (reaped == pid_ && WIFSIGNALED(status)) {
    end.signal = WTERMSIG(status);
  } else {
    end.exit_code = reaped == pid_ ? WEXITSTATUS(status) : -1;  // -1: somebody else reaped it
  }
  end_ = end;
}

const std::optional<ExitStatus>& ChildProcess::Poll() {
  Reap(/*block=*/false);
  return end_;
}

void ChildProcess::Signal(int signal) {
  if (pid_ > 0 && !Poll()) kill(pid_, signal);
}

void ChildProcess::Kill() {
  if (pid_ < 0 || Poll()) return;
  kill(pid_, SIGKILL);
  Reap(/*block=*/true);
}

absl::StatusOr<bool> LineReader::Read(int fd, std::vector<std::string>& lines) {
  char buffer[65536];
  while (true) {
    const ssize_t got = read(fd, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
    if (got < 0) return SystemError("cannot read what a child prints", errno);
    if (got == 0) {
      if (!pending_.empty()) lines.push_back(std::exchange(pending_, {}));
      return false;
    }
    absl::string_view text(buffer, static_cast<size_t>(got));
    for (size_t end = text.find('\n'); end != absl::string_view::npos; end = text.find('\n')) {
      absl::StrAppend(&pending_, text.substr(0, end));
      lines.push_back(std::exchange(pending_, {}));
      text.remove_prefix(end + 1);
    }
    if (pending_.size() + text.size() > kMaxLineBytes) {
      return absl::ResourceExhaustedError(absl::StrCat("a child printed a line of more than ", kMaxLineBytes, " bytes"));
    }
    absl::StrAppend(&pending_, text);
  }
}

std::string TailOfFile(const std::string& path, int lines) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return "";
  const std::streamoff size = file.tellg();
  constexpr std::streamoff kTail = 4096;
  file.seekg(std::max<std::streamoff>(0, size - kTail));
  std::string text(static_cast<size_t>(std::min(size, kTail)), '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  std::vector<std::string> all = absl::StrSplit(text, '\n', absl::SkipEmpty());
  if (all.size() > static_cast<size_t>(lines)) all.erase(all.begin(), all.end() - lines);
  return absl::StrJoin(all, "\n");
}

}  // namespace fusionllm::cli
