#include "lib/kube/auth/child_program.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <map>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"

extern char** environ;

namespace fusionllm::kube {
namespace {

constexpr size_t kMaxErrorBytes = 4096;

class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    Close();
    fd_ = std::exchange(other.fd_, -1);
    return *this;
  }
  ~Fd() { Close(); }
  int get() const { return fd_; }
  void Close() {
    if (fd_ >= 0) close(std::exchange(fd_, -1));
  }

 private:
  int fd_;
};

struct Pipe {
  Fd ours, theirs;
};

absl::StatusOr<Pipe> MakePipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return absl::ResourceExhaustedError(absl::StrCat("pipe: ", std::strerror(errno)));
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return Pipe{Fd(ends[0]), Fd(ends[1])};
}

std::vector<std::string> Environment(const ChildProgram& program) {
  std::map<std::string, std::string> merged;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    const std::string text(*variable);
    merged[text.substr(0, text.find('='))] = text;
  }
  for (const auto& [name, value] : program.env) merged[name] = absl::StrCat(name, "=", value);
  std::vector<std::string> out;
  for (auto& [name, text] : merged) out.push_back(std::move(text));
  return out;
}

std::vector<char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// The id of the process, which leads a process group of its own.
absl::StatusOr<pid_t> Spawn(const ChildProgram& program, int out, int err) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  const absl::Cleanup destroy = [&] {
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
  };
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err, STDERR_FILENO);
  sigset_t none, defaults;
  sigemptyset(&none);
  sigfillset(&defaults);
  sigdelset(&defaults, SIGKILL);
  sigdelset(&defaults, SIGSTOP);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  const std::vector<std::string> environment = Environment(program);
  pid_t pid = -1;
  const int error =
      posix_spawnp(&pid, program.argv[0].c_str(), &actions, &attributes, Pointers(program.argv).data(), Pointers(environment).data());
  if (error == 0) return pid;
  return absl::NotFoundError(absl::StrCat("cannot run ", program.argv[0], ": ", std::strerror(error)));
}

// Reads what is there. False when the pipe is closed.
bool Drain(int fd, std::string& into, size_t most) {
  char bytes[4096];
  while (true) {
    const ssize_t got = read(fd, bytes, sizeof(bytes));
    if (got == 0) return false;
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    into.append(bytes, std::min(static_cast<size_t>(got), most + 1 - std::min(into.size(), most + 1)));
    if (into.size() > most) return true;
  }
}

// Until the program has closed both pipes and ended; `end` is as waitpid() gives it. After an error it may still run.
absl::Status Collect(const ChildProgram& program, pid_t pid, Pipe& out, Pipe& err, const std::stop_token& stop, std::string& output,
                     std::string& errors, int& end) {
  const Fd wakeup(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  const std::stop_callback wake(stop, [&wakeup] { eventfd_write(wakeup.get(), 1); });
  const auto deadline = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(program.timeout);
  while (true) {
    const bool closed = out.ours.get() < 0 && err.ours.get() < 0;
    if (closed && waitpid(pid, &end, WNOHANG) == pid) return absl::OkStatus();
    if (stop.stop_requested()) return absl::CancelledError(absl::StrCat(program.argv[0], ": stopped"));
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    if (left <= 0)
      return absl::DeadlineExceededError(absl::StrCat(program.argv[0], ": not done within ", absl::FormatDuration(program.timeout)));
    pollfd polled[] = {{out.ours.get(), POLLIN, 0}, {err.ours.get(), POLLIN, 0}, {wakeup.get(), POLLIN, 0}};
    // Between closing its pipes and its end a program has little to do: that nothing tells of it costs a look each 2 ms.
    poll(polled, 3, static_cast<int>(std::min<int64_t>(left, closed ? 2 : 60'000)));
    if (polled[0].revents != 0 && !Drain(out.ours.get(), output, program.max_output_bytes)) out.ours.Close();
    if (polled[1].revents != 0) {
      std::string more;
      if (!Drain(err.ours.get(), more, kMaxErrorBytes)) err.ours.Close();
      errors.append(more, 0, kMaxErrorBytes - std::min(kMaxErrorBytes, errors.size()));
    }
    if (output.size() > program.max_output_bytes) {
      return absl::ResourceExhaustedError(absl::StrCat(program.argv[0], ": printed more than ", program.max_output_bytes, " bytes"));
    }
  }
}

}  // namespace

absl::StatusOr<std::string> RunProgram(const ChildProgram& program, std::stop_token stop, ProgramReport& report) {
  report = {};
  FUSIONLLM_ASSIGN_OR_RETURN(Pipe out, MakePipe());
  FUSIONLLM_ASSIGN_OR_RETURN(Pipe err, MakePipe());
  FUSIONLLM_ASSIGN_OR_RETURN(const pid_t pid, Spawn(program, out.theirs.get(), err.theirs.get()));
  out.theirs.Close();
  err.theirs.Close();
  std::string output;
  int end = 0;
  const absl::Status collected = Collect(program, pid, out, err, stop, output, report.errors, end);
  if (!collected.ok()) {
    kill(-pid, SIGKILL);
    while (waitpid(pid, &end, 0) < 0 && errno == EINTR) {
    }
  }
  // 127: what a shell, or a C library that learns it too late, says of a program that is not there.
  const bool missing = collected.ok() && WIFEXITED(end) && WEXITSTATUS(end) == 127 && output.empty();
  if (!missing) report.exit_code = WIFEXITED(end) ? WEXITSTATUS(end) : -1;
  FUSIONLLM_RETURN_IF_ERROR(collected);
  if (missing) return absl::NotFoundError(absl::StrCat("cannot run ", program.argv[0]));
  if (report.exit_code == 0) return output;
  return absl::FailedPreconditionError(WIFEXITED(end) ? absl::StrCat(program.argv[0], ": ended with ", WEXITSTATUS(end))
                                                      : absl::StrCat(program.argv[0], ": ended by signal ", WTERMSIG(end)));
}

}  // namespace fusionllm::kube
