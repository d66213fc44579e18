#include "lib/base/cpu_usage.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace fusionllm::base {
namespace {

constexpr double kMinShareLeft = 0.75;  // of the cores that are wanted: with less, times are a third longer

double TicksPerSecond() { return static_cast<double>(std::max(1L, sysconf(_SC_CLK_TCK))); }

double Seconds(const timeval& time) { return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec); }

double KernelsAccount() {
  double seconds = 0;
  for (const int who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage usage{};
    if (getrusage(who, &usage) == 0) seconds += Seconds(usage.ru_utime) + Seconds(usage.ru_stime);
  }
  return seconds;
}

double SteadySeconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// proc(5), PID/stat: the name stands in brackets and may hold anything; utime and stime are the 12th and 13th fields behind it.
double SecondsOfChild(const std::string& proc_folder, pid_t pid) {
  std::ifstream in(absl::StrCat(proc_folder, "/", pid, "/stat"));
  std::string text;
  std::getline(in, text);
  const size_t end = text.rfind(')');
  if (end == std::string::npos) return 0;
  const std::vector<absl::string_view> fields = absl::StrSplit(absl::string_view(text).substr(end + 1), ' ', absl::SkipEmpty());
  double user = 0, system = 0;
  if (fields.size() < 13 || !absl::SimpleAtod(fields[11], &user) || !absl::SimpleAtod(fields[12], &system)) return 0;
  return (user + system) / TicksPerSecond();
}

std::optional<double> FirstNumber(const std::string& path) {
  std::ifstream in(path);
  double number = 0;
  return in >> number ? std::optional(number) : std::nullopt;
}

}  // namespace

bool IsBusy(const CpuUsage& use, double wanted) {
  const double cores = use.cores;
  return cores - use.others < kMinShareLeft * std::min(wanted, cores);
}

std::string BusySentence(const CpuUsage& use) {
  return absl::StrFormat(
      "this machine is busy: other programs use %.1f of its %d %s%s; times measured now are longer than on an idle machine", use.others,
      use.cores, use.cores == 1 ? "core" : "cores", use.load > 0 ? absl::StrFormat(" (load %.1f)", use.load) : "");
}

std::string OthersUsed(const CpuUsage& use) {
  return absl::StrFormat("other programs used %.1f of this machine's %d %s", use.others, use.cores, use.cores == 1 ? "core" : "cores");
}

double AllowedCores(const std::string& cgroup_folder) {
  cpu_set_t set;
  CPU_ZERO(&set);
  double cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : static_cast<double>(sysconf(_SC_NPROCESSORS_ONLN));
  double quota = 0, period = 0;
  // Version 2 has "200000 100000", or "max 100000" without a limit; version 1 two files, the first with -1 then.
  if (std::ifstream in(cgroup_folder + "/cpu.max"); in >> quota >> period) {
    if (quota > 0 && period > 0) cores = std::min(cores, quota / period);
  } else if (const auto limit = FirstNumber(cgroup_folder + "/cpu/cpu.cfs_quota_us"); limit && *limit > 0) {
    const double every = FirstNumber(cgroup_folder + "/cpu/cpu.cfs_period_us").value_or(0);
    if (every > 0) cores = std::min(cores, *limit / every);
  }
  return cores;
}

CpuUsageMeter::CpuUsageMeter(Options options) : options_(std::move(options)) { Restart(); }

void CpuUsageMeter::Restart(std::span<const pid_t> children) { begin_ = Now(children); }

std::optional<CpuUsage> CpuUsageMeter::Read(std::span<const pid_t> children) const {
  const Times end = Now(children);
  const double seconds = end.wall_s - begin_.wall_s;
  if (begin_.cores == 0 || end.cores == 0 || !(seconds >= kMinSeconds)) return std::nullopt;
  const double others = (end.machine_s - begin_.machine_s - (end.own_s - begin_.own_s)) / seconds;
  return CpuUsage{.others = std::clamp(others, 0.0, static_cast<double>(end.cores)),
                  .cores = end.cores,
                  .load = FirstNumber(options_.proc_folder + "/loadavg").value_or(0)};
}

// proc(5), stat: "cpu  user nice system idle iowait irq softirq steal guest guest_nice", of which the last two are part of the first two;
// then a line for each core.
CpuUsageMeter::Times CpuUsageMeter::Now(std::span<const pid_t> children) const {
  Times times{.wall_s = options_.now_s ? options_.now_s() : SteadySeconds(), .own_s = options_.own_s ? options_.own_s() : KernelsAccount()};
  for (const pid_t child : children) times.own_s += SecondsOfChild(options_.proc_folder, child);
  std::ifstream in(options_.proc_folder + "/stat");
  for (std::string line; std::getline(in, line) && absl::StartsWith(line, "cpu");) {
    const std::vector<absl::string_view> fields = absl::StrSplit(line, ' ', absl::SkipEmpty());
    if (fields[0] != "cpu") {
      ++times.cores;
      continue;
    }
    for (const size_t i : {1, 2, 3, 6, 7, 8}) {
      double ticks = 0;
      if (i < fields.size() && absl::SimpleAtod(fields[i], &ticks)) times.machine_s += ticks / TicksPerSecond();
    }
  }
  return times;
}

}  // namespace fusionllm::base
