#include "tests/load/operator_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "lib/daemon/testing/http_get.h"
#include "lib/kube/clock.h"

namespace fusionllm::load {
namespace {

std::string LineOf(FILE* in) {
  std::string line;
  for (int c = fgetc(in); c != EOF && c != '\n'; c = fgetc(in)) line.push_back(static_cast<char>(c));
  return line;
}

// Of a label in `{a="x",b="y"}`.
std::string LabelOf(absl::string_view line, const std::string& label) {
  const std::string before = absl::StrCat(label, "=\"");
  const size_t at = line.find(before);
  if (at == absl::string_view::npos) return "";
  const size_t begin = at + before.size();
  return std::string(line.substr(begin, line.find('"', begin) - begin));
}

}  // namespace

absl::Duration Now() { return kube::RealClock().Monotonic(); }

void Die(const std::string& why) {
  std::fprintf(stderr, "%s\n", why.c_str());
  std::exit(1);
}

OperatorProcess::OperatorProcess(std::vector<std::string> arguments, const std::string& log) : started_(kube::RealClock().Monotonic()) {
  const char* const folder = std::getenv("FUSIONLLM_BIN_DIR");
  arguments.insert(arguments.begin(), absl::StrCat(folder == nullptr ? "build/bin" : folder, "/fusion-operator"));
  std::vector<std::string> environment = {"GLIBC_TUNABLES=glibc.malloc.tcache_count=0"};  // as the chart has it
  for (char** variable = environ; *variable != nullptr; ++variable) environment.emplace_back(*variable);
  std::vector<char*> argv, envp;
  for (std::string& variable : environment) envp.push_back(variable.data());
  envp.push_back(nullptr);
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const int err = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  int ends[2];
  if (err < 0 || pipe2(ends, O_CLOEXEC) != 0) Die(absl::StrCat("cannot write ", log));
  pid_ = fork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // a report that ends in the middle leaves no operator behind
    dup2(ends[1], STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    execve(argv[0], argv.data(), envp.data());
    _exit(127);
  }
  close(err);
  close(ends[1]);
  out_ = fdopen(ends[0], "r");
  const std::string line = LineOf(out_), before = "metrics on http://", after = "/metrics";
  if (!absl::StartsWith(line, before)) Die(absl::StrCat(arguments[0], " did not start; see ", log));
  address_ = line.substr(before.size(), line.size() - before.size() - after.size());
}

OperatorProcess::~OperatorProcess() {
  if (pid_ > 0) {
    Signal(SIGKILL);
    Wait();
  }
  if (out_ != nullptr) fclose(out_);
}

absl::Duration OperatorProcess::WaitReady() const {
  kube::Clock& clock = kube::RealClock();
  while (daemon::HttpGet(address_, "/readyz").code != 200) {
    if (clock.Monotonic() - started_ > absl::Minutes(1)) Die("the operator does not become ready");
    clock.WaitFor(absl::Milliseconds(2), {});
  }
  return clock.Monotonic() - started_;
}

int OperatorProcess::CodeOf(const std::string& page) const { return daemon::HttpGet(address_, page).code; }

void OperatorProcess::Signal(int signal) const { kill(pid_, signal); }

int OperatorProcess::Wait() {
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

Usage OperatorProcess::MeasureUsage() const {
  Usage usage;
  std::ifstream stat(absl::StrCat("/proc/", pid_, "/stat"));
  std::stringstream text;
  text << stat.rdbuf();
  // utime and stime are the 14th and 15th field; the second, the name, ends with the last ')'.
  const std::vector<std::string> fields = absl::StrSplit(text.str().substr(text.str().rfind(')') + 2), ' ');
  double user = 0, system = 0;
  if (fields.size() > 12 && absl::SimpleAtod(fields[11], &user) && absl::SimpleAtod(fields[12], &system)) {
    usage.cpu_s = (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
  }
  std::ifstream status(absl::StrCat("/proc/", pid_, "/status"));
  for (std::string line; std::getline(status, line);) {
    const std::vector<std::string> words = absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    double kib = 0;
    if (words.size() < 2 || !absl::SimpleAtod(words[1], &kib)) continue;
    if (words[0] == "VmRSS:") usage.resident_mib = kib / 1024;
    if (words[0] == "VmHWM:") usage.peak_mib = kib / 1024;
  }
  return usage;
}

std::string OperatorProcess::Metrics() const { return daemon::HttpGet(address_, "/metrics").body; }

double HistogramQuantile(const std::string& metrics, const std::string& name, const std::string& label, const std::string& prefix,
                         double share) {
  std::map<double, double> counts;  // by the bucket's upper end, of it and all below
  const std::string series = absl::StrCat(name, "_bucket{");
  for (const absl::string_view line : absl::StrSplit(metrics, '\n')) {
    if (!absl::StartsWith(line, series) || !absl::StartsWith(LabelOf(line, label), prefix)) continue;
    const std::string end = LabelOf(line, "le");
    double upper = 0, count = 0;
    if (end == "+Inf") {
      upper = std::numeric_limits<double>::infinity();
    } else if (!absl::SimpleAtod(end, &upper)) {
      continue;
    }
    if (absl::SimpleAtod(line.substr(line.rfind(' ') + 1), &count)) counts[upper] += count;
  }
  if (counts.empty() || counts.rbegin()->second == 0) return 0;
  const double wanted = share * counts.rbegin()->second;
  double lower_end = 0, below = 0;
  for (const auto& [upper, count] : counts) {
    if (count >= wanted) return upper > 1e300 ? lower_end : lower_end + (upper - lower_end) * (wanted - below) / (count - below);
    lower_end = upper;
    below = count;
  }
  return lower_end;
}

}  // namespace fusionllm::load
