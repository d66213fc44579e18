#include "tests/monitoring/child.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace fusionllm::monitoring {

std::string FindProgram(const char* variable, const std::string& name) {
  if (const char* given = std::getenv(variable); given != nullptr) return given;
  const char* path = std::getenv("PATH");
  for (const absl::string_view folder : absl::StrSplit(path == nullptr ? "" : path, ':', absl::SkipEmpty())) {
    const std::string program = absl::StrCat(folder, "/", name);
    if (access(program.c_str(), X_OK) == 0 && !std::filesystem::is_directory(program)) return program;
  }
  return "";
}

Child::Child(const std::string& program, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), program);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) std::abort();
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ == 0) {
    dup2(ends[1], STDOUT_FILENO);
    dup2(ends[1], STDERR_FILENO);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127);
    execv(argv[0], argv.data());
    _exit(127);
  }
  close(ends[1]);
  out_ = ends[0];
  reader_ = std::thread([this] { Read(); });
}

Child::~Child() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    Wait();
  }
  reader_.join();
  close(out_);
}

void Child::Read() {
  std::string rest;
  char buffer[4096];
  for (ssize_t got; (got = read(out_, buffer, sizeof buffer)) > 0;) {
    rest.append(buffer, static_cast<size_t>(got));
    const base::MutexLock lock(mutex_);
    for (size_t end; (end = rest.find('\n')) != std::string::npos; rest.erase(0, end + 1)) lines_.push_back(rest.substr(0, end));
    changed_.notify_all();
  }
  const base::MutexLock lock(mutex_);
  if (!rest.empty()) lines_.push_back(rest);
  ended_ = true;
  changed_.notify_all();
}

std::string Child::WaitForLine(const std::function<bool(const std::string& line)>& wanted, absl::Duration timeout) {
  base::UniqueLock lock(mutex_);
  size_t seen = 0;
  std::string found;
  const auto look = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (; seen < lines_.size() && found.empty(); ++seen) {
      if (wanted(lines_[seen])) found = lines_[seen];
    }
    return !found.empty() || ended_;
  };
  changed_.wait_for(lock, absl::ToChronoMilliseconds(timeout), look);
  return found;
}

int Child::Wait() {
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::string Child::Output() {
  const base::MutexLock lock(mutex_);
  return absl::StrJoin(lines_, "\n");
}

}  // namespace fusionllm::monitoring
