// A program started as a child of this one, without a shell, that cannot outlive it.
//
// Every child gets SIGKILL from the kernel when the thread that started it ends, however it ends (PR_SET_PDEATHSIG): start children from
// the main thread. A child is the leader of its own process group, so Ctrl-C at the terminal reaches only this program, which decides what
// to do. Its stdin is /dev/null, no descriptor but 0, 1 and 2 is inherited, signals are at their defaults.
// Not thread-safe.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace fusionllm::cli {

// How a child ended: exactly one is set.
struct ExitStatus {
  std::optional<int> exit_code;
  std::optional<int> signal;
};
// "exit code 1", "killed by signal 9 (Killed)".
std::string Describe(const ExitStatus& end);

class ChildProcess {
 public:
  struct Options {
    std::string name;               // for messages
    std::vector<std::string> argv;  // argv[0] is the path of the program
    std::string log_path;           // stderr is appended here
    bool pipe_stdout = false;       // else stdout goes to the log too
  };

  // Blocks until the program runs or could not be started; the error then says why ("cannot start /x/y: No such file or directory").
  static absl::StatusOr<ChildProcess> Start(const Options& options);

  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  // Kills and reaps a child that still runs.
  ~ChildProcess();

  const std::string& name() const { return name_; }
  const std::string& log_path() const { return log_path_; }
  pid_t pid() const { return pid_; }
  int stdout_fd() const { return stdout_fd_; }  // non-blocking; -1: not piped

  // Reaps without blocking; the answer stays the same once there is one.
  const std::optional<ExitStatus>& Poll();
  // Does nothing once the child was reaped, so it never hits a stranger that got its number.
  void Signal(int signal);
  // SIGKILL and wait for the end.
  void Kill();

 private:
  ChildProcess() = default;
  void Reap(bool block);
  void CloseStdout();

  std::string name_;
  std::string log_path_;
  pid_t pid_ = -1;
  int stdout_fd_ = -1;
  std::optional<ExitStatus> end_;
};

// Cuts what arrives on a descriptor into lines.
class LineReader {
 public:
  // A longer line is an error: plans of large models stay far below it.
  static constexpr size_t kMaxLineBytes = size_t{64} << 20;

  // Reads what is there without blocking and appends whole lines, without their ends, to `lines`. False when the writer has closed its
  // end; a last line without an end then counts.
  absl::StatusOr<bool> Read(int fd, std::vector<std::string>& lines);

 private:
  std::string pending_;
};

// The last lines of a text file, at most `lines` of them and 4 KiB; empty when there is none. For messages about a child that failed.
std::string TailOfFile(const std::string& path, int lines);

}  // namespace fusionllm::cli
