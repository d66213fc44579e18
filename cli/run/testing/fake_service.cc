// A stand-in for the programs of a run: `fake_service ROLE SCRIPT PROTOCOL-ARGUMENTS...`, ROLE scheduler, broker or executor.
//
// It notes its arguments in SCRIPT.ROLE.calls (a line for each start) and its pid in SCRIPT.pids. A scheduler and an executor then wait to
// be asked to go. A broker says where it listens, then does what the file SCRIPT says, line by line:
//   print TEXT     TEXT to stdout
//   wait FILE      until FILE exists
//   wait-term      until SIGTERM has come
//   die-once N     SIGKILL itself in its first N starts; later starts go on
//   exit CODE
#include <fcntl.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace {

void AppendLine(const std::string& path, const std::string& line) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  const std::string text = line + "\n";
  if (fd < 0 || write(fd, text.data(), text.size()) != static_cast<ssize_t>(text.size())) std::abort();
  close(fd);
}

int CountLines(const std::string& path) {
  std::ifstream file(path);
  int lines = 0;
  for (std::string line; std::getline(file, line);) ++lines;
  return lines;
}

int g_term_fd = -1;
bool g_term = false;

void WaitTerm(int timeout_ms) {
  pollfd fd = {g_term_fd, POLLIN, 0};
  if (poll(&fd, 1, timeout_ms) == 1) g_term = true;
}

int Play(const std::string& script, int start) {
  std::ifstream file(script);
  for (std::string line; std::getline(file, line);) {
    absl::string_view rest = line;
    int number = 0;
    if (absl::ConsumePrefix(&rest, "print ")) {
      std::printf("%s\n", std::string(rest).c_str());
      std::fflush(stdout);
    } else if (absl::ConsumePrefix(&rest, "wait ")) {
      while (access(std::string(rest).c_str(), F_OK) != 0) WaitTerm(5);
    } else if (rest == "wait-term") {
      while (!g_term) WaitTerm(-1);
    } else if (absl::ConsumePrefix(&rest, "die-once ") && absl::SimpleAtoi(rest, &number)) {
      if (start <= number) raise(SIGKILL);
    } else if (absl::ConsumePrefix(&rest, "exit ") && absl::SimpleAtoi(rest, &number)) {
      std::fprintf(stderr, "the fake broker goes\n");
      return number;
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string role = argv[1];
  const std::string script = argv[2];
  // `stubborn-executor` stays when it is asked to go.
  const bool stubborn = role == "stubborn-executor";
  sigset_t term;
  sigemptyset(&term);
  sigaddset(&term, SIGTERM);
  sigprocmask(SIG_BLOCK, &term, nullptr);
  g_term_fd = signalfd(-1, &term, SFD_CLOEXEC);

  std::string call;
  for (int i = 3; i < argc; ++i) absl::StrAppend(&call, i == 3 ? "" : " ", argv[i]);
  const std::string calls = absl::StrCat(script, ".", role, ".calls");
  AppendLine(calls, call);
  AppendLine(script + ".pids", absl::StrCat(getpid()));
  if (role == "executor" || stubborn) {
    while (stubborn || !g_term) WaitTerm(-1);
    return 0;
  }
  const int start = CountLines(calls);
  std::printf("listening on 127.0.0.1:%s\n", role == "broker" ? "4711" : "4712");
  std::fflush(stdout);
  if (role == "broker") return Play(script, start);
  while (!g_term) WaitTerm(-1);
  return 0;
}
