#include "lib/daemon/process_metrics.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <system_error>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace fusionllm::daemon {
namespace {

metrics::FamilySpec Spec(const char* name, const char* help) { return {.name = name, .help = help, .prefix = "process_"}; }

struct Memory {
  int64_t virtual_bytes = 0, resident_bytes = 0;
};

std::optional<Memory> ReadMemory() {
  std::ifstream in("/proc/self/statm");
  int64_t all = 0, resident = 0;
  if (!(in >> all >> resident)) return std::nullopt;
  const int64_t page = sysconf(_SC_PAGESIZE);
  return Memory{all * page, resident * page};
}

std::optional<int> CountOpenFiles() {
  std::error_code error;
  int count = -1;  // that which reads the folder is not the process' own
  for (std::filesystem::directory_iterator at("/proc/self/fd", error), end; !error && at != end; at.increment(error)) ++count;
  return error ? std::nullopt : std::optional(count);
}

double Seconds(const timeval& time) { return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec); }

}  // namespace

void AddProcessMetrics(metrics::Registry& registry) {
  const metrics::Counter cpu = registry.AddCounter(Spec("cpu_seconds_total", "Time of processor cores, user and system."));
  const metrics::Gauge all = registry.AddGauge(Spec("virtual_memory_bytes", "Address space."));
  const metrics::Gauge resident = registry.AddGauge(Spec("resident_memory_bytes", "Memory of the machine that it has."));
  const metrics::Gauge start = registry.AddGauge(Spec("start_time_seconds", "When it began, since 1970."));
  const metrics::Gauge open = registry.AddGauge(Spec("open_fds", "Files and connections that are open."));
  const metrics::Gauge most = registry.AddGauge(Spec("max_fds", "How many may be."));
  start.Set(absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()));
  registry.OnCollect([=] {
    rusage usage{};
    if (getrusage(RUSAGE_SELF, &usage) == 0) cpu.IncreaseTo(Seconds(usage.ru_utime) + Seconds(usage.ru_stime));
    if (const std::optional<Memory> memory = ReadMemory()) {
      all.Set(static_cast<double>(memory->virtual_bytes));
      resident.Set(static_cast<double>(memory->resident_bytes));
    }
    if (const std::optional<int> files = CountOpenFiles()) open.Set(*files);
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) most.Set(static_cast<double>(limit.rlim_cur));
  });
}

}  // namespace fusionllm::daemon
