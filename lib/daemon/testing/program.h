// One of our programs as a child of a test. Ends it with SIGKILL if the test does not end it otherwise.
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace fusionllm::daemon {

class Program {
 public:
  // What it writes to `descriptor` can be read by Line(). `threads_max`: of it and whatever else its user runs; root, whom no limit binds,
  // becomes the user nobody for it.
  Program(const std::string& name, std::vector<std::string> arguments, int descriptor = STDOUT_FILENO, rlim_t threads_max = RLIM_INFINITY) {
    const char* folder = std::getenv("FUSIONLLM_BIN_DIR");
    arguments.insert(arguments.begin(), std::string(folder == nullptr ? "." : folder) + "/" + name);
    int ends[2];
    if (pipe(ends) != 0) std::abort();
    pid_ = fork();
    if (pid_ == 0) {
      dup2(ends[1], descriptor);
      close(ends[0]);
      if (threads_max != RLIM_INFINITY) Limit(threads_max);
      std::vector<char*> argv;
      for (std::string& argument : arguments) argv.push_back(argument.data());
      argv.push_back(nullptr);
      execv(argv[0], argv.data());
      _exit(127);
    }
    close(ends[1]);
    out_ = fdopen(ends[0], "r");
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      Wait();
    }
    fclose(out_);
  }

  // The next line of stdout, without its end; empty at the end.
  std::string Line() {
    std::string line;
    for (int c = fgetc(out_); c != EOF && c != '\n'; c = fgetc(out_)) line.push_back(static_cast<char>(c));
    return line;
  }
  // Whether a line that begins so comes before an empty one or the end; reads up to it.
  bool Says(const std::string& beginning) {
    for (std::string line = Line(); !line.empty(); line = Line()) {
      if (line.rfind(beginning, 0) == 0) return true;
    }
    return false;
  }
  void Terminate() const { kill(pid_, SIGTERM); }
  // Exit code, or 128 and the signal.
  int Wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  static void Limit(rlim_t threads_max) {
    constexpr id_t kUnprivilegedId = 65534;
    const rlimit limit = {threads_max, threads_max};
    if (setrlimit(RLIMIT_NPROC, &limit) != 0) _exit(126);
    if (geteuid() == 0 && (setgid(kUnprivilegedId) != 0 || setuid(kUnprivilegedId) != 0)) _exit(126);
  }

  pid_t pid_ = -1;
  FILE* out_ = nullptr;
};

// HOST:PORT of the line with which a program says where its metrics are; empty for another line.
inline std::string MetricsAddress(const std::string& line) {
  const std::string before = "metrics on http://", after = "/metrics";
  if (line.rfind(before, 0) != 0 || line.size() < before.size() + after.size()) return "";
  return line.substr(before.size(), line.size() - before.size() - after.size());
}

}  // namespace fusionllm::daemon
