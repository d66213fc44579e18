// fusionctl doctor
#include "cli/commands/doctor.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/commands/command.h"
#include "cli/commands/job_arguments.h"
#include "lib/base/cpu_usage.h"
#include "lib/kernels/backend.h"
#include "lib/kernels/devices.h"
#include "lib/report/number_format.h"

namespace fusionllm::cli {
namespace {

constexpr double kMinMemoryBytes = 2.0 * (int64_t{1} << 30);
constexpr double kMinDiskBytes = 1.0 * (int64_t{1} << 30);
constexpr int kMinOpenFiles = 1024;

Check Processor() {
  std::ifstream in("/proc/cpuinfo");
  std::set<std::string> flags;
  std::string model = "unknown processor";
  for (std::string line; std::getline(in, line);) {
    const size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    if (absl::StartsWith(line, "model name")) model = line.substr(colon + 2);
    if (!absl::StartsWith(line, "flags")) continue;
    std::istringstream words(line.substr(colon + 2));
    for (std::string word; words >> word;) flags.insert(word);
    break;
  }
  std::vector<std::string> found;
  for (const char* flag : {"avx2", "fma", "avx512f", "avx512_bf16", "amx_tile"}) {
    if (flags.contains(flag)) found.emplace_back(flag);
  }
  const bool fast = flags.contains("avx2") && flags.contains("fma");
  return {.name = "processor",
          .status = fast ? CheckStatus::kOk : CheckStatus::kWarning,
          .finding = absl::StrCat(model, found.empty() ? "" : absl::StrCat(" with ", absl::StrJoin(found, ", "))),
          .advice = fast ? "" : "without AVX2 and FMA everything works, several times slower"};
}

Check Cores() {
  const int cores = MachineCores();
  const double allowed = base::AllowedCores();
  if (allowed < cores) {
    return {.name = "cores",
            .status = CheckStatus::kWarning,
            .finding = absl::StrFormat("%d, of which a limit of the container leaves %.3g", cores, allowed),
            .advice =
                absl::StrFormat("set spec.executors.threads, or a device's threads in a topology, to %d: more of them wait for each other",
                                std::max(1, static_cast<int>(allowed)))};
  }
  return {.name = "cores",
          .status = cores >= 2 ? CheckStatus::kOk : CheckStatus::kWarning,
          .finding = absl::StrCat(cores),
          .advice = cores >= 2 ? "" : "emulated devices share one core: keep the sum of their computeScale below 1"};
}

// Of a moment: a program with a minute of work shows in it.
Check Load() {
  const base::CpuUsageMeter meter;
  std::this_thread::sleep_for(std::chrono::milliseconds(250));
  const std::optional<base::CpuUsage> use = meter.Read();
  if (!use) return {.name = "load", .status = CheckStatus::kNote, .finding = "not known: /proc/stat cannot be read"};
  const bool busy = base::IsBusy(*use, base::AllowedCores());
  return {.name = "load",
          .status = busy ? CheckStatus::kWarning : CheckStatus::kOk,
          .finding = busy ? base::BusySentence(*use) : absl::StrFormat("other programs use %.1f of %d cores", use->others, use->cores),
          .advice = busy ? "let the other work end before jobs are planned and run, or calibrate while it goes on" : ""};
}

Check Memory() {
  std::ifstream in("/proc/meminfo");
  double total = static_cast<double>(MachineMemoryBytes()), free = total;
  for (std::string key, unit; in >> key;) {
    double kib = 0;
    in >> kib;
    std::getline(in, unit);
    if (key == "MemAvailable:") free = kib * 1024;
  }
  const bool enough = free >= kMinMemoryBytes;
  return {.name = "memory",
          .status = enough ? CheckStatus::kOk : CheckStatus::kWarning,
          .finding = absl::StrCat(report::MemoryBytes(free), " free of ", report::MemoryBytes(total)),
          .advice = enough ? "" : "little is free: use small models, or close other programs"};
}

Check Backend(absl::string_view name) {
  const auto backend = kernels::CreateBackend(name, {.threads = 1});
  const std::string title = absl::StrCat("back end ", name);
  if (!backend.ok()) {
    return {.name = title,
            .status = CheckStatus::kProblem,
            .finding = std::string(backend.status().message()),
            .advice = "reinstall the packages of tools/packages.txt"};
  }
  return {.name = title, .finding = (*backend)->Describe()};
}

// What `--device auto` of an executor and of `fusionctl join` is here.
Check Device() {
  const auto device = kernels::ChooseDevice("auto");
  if (device.ok()) return {.name = "device", .finding = device->description};
  return {.name = "device",
          .status = CheckStatus::kWarning,
          .finding = std::string(device.status().message()),
          .advice = "--device cpu computes on the CPU all the same"};
}

// Whether a socket can be opened on the loopback device and reached.
Check Loopback() {
  const int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  const bool works = server >= 0 && client >= 0 && bind(server, generic, size) == 0 && listen(server, 1) == 0 &&
                     getsockname(server, generic, &size) == 0 && connect(client, generic, size) == 0;
  if (server >= 0) close(server);
  if (client >= 0) close(client);
  return {.name = "loopback network",
          .status = works ? CheckStatus::kOk : CheckStatus::kProblem,
          .finding = works ? "processes of this machine can talk to each other" : "a connection to 127.0.0.1 fails",
          .advice = works ? "" : "bring the device `lo` up, or let the sandbox open sockets"};
}

// In a child, since the namespace cannot be left again.
Check NetworkNamespaces() {
  const pid_t child = fork();
  if (child == 0) _exit(unshare(CLONE_NEWNET) == 0 ? 0 : 1);
  int status = 1;
  if (child > 0) waitpid(child, &status, 0);
  const bool allowed = child > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  return {.name = "network namespaces",
          .status = allowed ? CheckStatus::kOk : CheckStatus::kNote,
          .finding = allowed ? "allowed" : "not allowed",
          .advice = allowed ? "" : "only some tests need them (as root); emulated links work without"};
}

Check OpenFiles() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const bool enough = limit.rlim_cur >= static_cast<rlim_t>(kMinOpenFiles);
  return {.name = "open files",
          .status = enough ? CheckStatus::kOk : CheckStatus::kWarning,
          .finding = absl::StrCat("at most ", static_cast<uint64_t>(limit.rlim_cur), " in a process"),
          .advice = enough ? "" : "raise it: ulimit -n 4096"};
}

Check Clock() {
  timespec resolution{}, now{};
  const bool works = clock_getres(CLOCK_MONOTONIC, &resolution) == 0 && clock_gettime(CLOCK_REALTIME, &now) == 0;
  constexpr int64_t kBeginningOf2024 = 1'704'067'200;  // seconds since 1970
  const bool sane = now.tv_sec > kBeginningOf2024;
  return {.name = "clock",
          .status = works && sane ? CheckStatus::kOk : CheckStatus::kWarning,
          .finding = absl::StrFormat("resolution %d ns", resolution.tv_nsec),
          .advice = sane ? "" : "the date is wrong: certificates will be refused until it is set"};
}

Check Disk(const std::string& folder) {
  struct statvfs info {};
  if (statvfs(folder.c_str(), &info) != 0) {
    return {.name = "disk",
            .status = CheckStatus::kProblem,
            .finding = absl::StrCat("cannot look at ", folder),
            .advice = "run fusionctl in a folder that exists"};
  }
  const double free = static_cast<double>(info.f_bavail) * static_cast<double>(info.f_frsize);
  const bool writable = access(folder.c_str(), W_OK) == 0;
  return {.name = "disk",
          .status = free < kMinDiskBytes || !writable ? CheckStatus::kWarning : CheckStatus::kOk,
          .finding = absl::StrCat(report::MemoryBytes(free), " free here", writable ? "" : ", not writable"),
          .advice = !writable              ? "runs leave their files in the working directory: use --output"
                    : free < kMinDiskBytes ? "checkpoints may not fit: use --output on a larger disk"
                                           : ""};
}

const char* Word(CheckStatus status) {
  switch (status) {
    case CheckStatus::kOk:
      return "ok";
    case CheckStatus::kNote:
      return "note";
    case CheckStatus::kWarning:
      return "warning";
    case CheckStatus::kProblem:
      return "problem";
  }
  return "problem";
}

int Report(const std::vector<Check>& checks, OutputFormat format) {
  bool broken = false;
  nlohmann::json list = nlohmann::json::array();
  for (const Check& check : checks) {
    broken |= check.status == CheckStatus::kProblem;
    list.push_back({{"name", check.name}, {"verdict", Word(check.status)}, {"finding", check.finding}, {"advice", check.advice}});
    if (format == OutputFormat::kText) {
      absl::PrintF("%-8s %s: %s\n", Word(check.status), check.name, check.finding);
      if (!check.advice.empty()) absl::PrintF("         %s\n", check.advice);
    }
  }
  if (format == OutputFormat::kJson) {
    absl::PrintF("%s\n",
                 nlohmann::json{{"checks", list}, {"healthy", !broken}}.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    absl::PrintF("\n%s\n", broken ? "Something must be put right before a job can run here." : "Jobs can run here.");
  }
  return broken ? kExitFailed : kExitDone;
}

}  // namespace

std::vector<Check> RunChecks() {
  std::vector<Check> checks = {Processor(), Cores(), Load(), Memory()};
  for (const absl::string_view name : kernels::BackendNames()) checks.push_back(Backend(name));
  checks.insert(checks.end(), {Device(), Loopback(), NetworkNamespaces(), OpenFiles(), Clock(), Disk(".")});
  return checks;
}

void AddDoctor(CLI::App& app, const Globals& globals, Action& action) {
  CLI::App* const command = app.add_subcommand("doctor", "Check whether this machine can run jobs, and say what to do if not");
  command->footer("Example:\n  fusionctl doctor");
  command->callback([&globals, &action] { action = [&globals] { return Report(RunChecks(), globals.format); }; });
}

}  // namespace fusionllm::cli
