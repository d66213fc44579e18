#include "cli/run/local_executors.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "lib/base/cpu_usage.h"
#include "lib/base/pluralize.h"
#include "lib/base/status_macros.h"
#include "lib/kernels/devices.h"
#include "lib/scheduler/plan_error_reasons.h"

namespace fusionllm::cli {
namespace {

constexpr int64_t kMaxWrittenOut = 4;  // of devices in an advice

int64_t CountOnCores(const std::vector<std::string>& devices) {
  return std::count_if(devices.begin(), devices.end(), [](const std::string& device) {
    const auto chosen = kernels::ChooseDevice(device);
    return chosen.ok() && chosen->backend == "cpu";
  });
}

// How to have `needed` executors in the place of those that were started.
std::string HowToHaveMore(int64_t needed, int64_t usable, const std::optional<job::Topology>& topology,
                          const std::vector<std::string>& devices, bool starts_executors) {
  if (topology) return absl::StrFormat("give topology %s %d devices that may train, it has %d", topology->metadata.name, needed, usable);
  if (!starts_executors) return absl::StrFormat("describe them by --topology FILE with %d or more", needed);
  const std::string file = absl::StrFormat("--topology FILE with %d or more (emulated devices)", needed);
  if (devices.empty() && needed <= kMaxWrittenOut) {
    const std::vector<std::string> list(static_cast<size_t>(needed), "cpu");
    return absl::StrCat("start them on this machine by --device ", absl::StrJoin(list, ","), ", or by ", file);
  }
  return absl::StrFormat("start them on this machine by --device with %d entries, or by %s", needed, file);
}

// "let the job use so many by --set ..", where its own limits are below `needed`; else empty.
std::string HowToRaiseLimits(const job::Executors& executors, int64_t needed) {
  std::vector<std::string> limits;
  if (executors.max.value_or(needed) < needed) limits.push_back(absl::StrCat("--set spec.executors.max=", needed));
  if (executors.replicas.value_or(needed) < needed) limits.push_back(absl::StrCat("--set spec.executors.replicas=", needed));
  return limits.empty() ? "" : absl::StrCat("let the job use so many by ", absl::StrJoin(limits, " "));
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ParseDeviceList(absl::string_view text) {
  std::vector<std::string> devices = absl::StrSplit(text, ',');
  if (devices.size() > kMaxLocalDevices) {
    return absl::InvalidArgumentError(absl::StrFormat("a list of %d devices: an executor is a process, and one machine starts at most %d",
                                                      devices.size(), kMaxLocalDevices));
  }
  for (size_t i = 0; i < devices.size(); ++i) {
    if (devices[i].empty()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("entry %d of '%s' is empty: a list has one device between commas, as in cpu,cpu", i + 1, text));
    }
    FUSIONLLM_RETURN_IF_ERROR(kernels::CheckDeviceName(devices[i]));
  }
  return devices;
}

std::vector<LocalExecutor> LocalExecutorsOf(const std::optional<job::Topology>& topology, const std::vector<std::string>& devices) {
  std::vector<LocalExecutor> executors;
  if (topology) {
    for (const job::Site& site : topology->spec.sites) {
      for (const job::Device& device : site.devices) executors.push_back({device.name, device.role == job::Role::kSpare});
    }
  } else if (devices.empty()) {
    executors.push_back({.name = "local-0"});
  } else {
    for (const std::string& device : devices) {
      executors.push_back({.name = absl::StrCat("local-", executors.size()), .device = device, .site = "local"});
    }
  }
  return executors;
}

void ShareCores(const std::vector<std::string>& devices, int64_t cores, job::Executors& executors) {
  const int64_t on_cores = CountOnCores(devices);
  if (on_cores < 2 || executors.threads > 0) return;
  executors.threads = std::max<int64_t>(1, cores / on_cores);
}

double WantedCores(const std::optional<job::Topology>& topology, int64_t threads, const std::vector<std::string>& devices) {
  const double allowed = base::AllowedCores();
  double wanted = 0;
  if (topology) {
    for (const job::Site& site : topology->spec.sites) {
      for (const job::Device& device : site.devices) {
        if (device.role != job::Role::kSpare && !device.profile) wanted += device.compute_scale * static_cast<double>(device.threads);
      }
    }
  } else {
    const int64_t on_cores = CountOnCores(devices), on_gpus = static_cast<int64_t>(devices.size()) - on_cores;
    // An executor on a GPU needs a core to keep it supplied.
    wanted = static_cast<double>(on_gpus + threads * on_cores);
    if (threads == 0 && on_cores > 0) wanted = allowed;
  }
  return std::min(wanted, allowed);
}

std::string OversubscriptionWarning(const std::vector<std::string>& devices, int64_t cores, const job::Executors& executors) {
  const int64_t on_cores = CountOnCores(devices), threads = on_cores * std::max<int64_t>(1, executors.threads);
  if (on_cores < 2 || threads <= cores) return "";
  return absl::StrFormat(
      "--device: %d executors compute on the CPU with %s, and this machine has %s: they share them, and a step takes longer than "
      "predicted",
      on_cores, executors.threads > 1 ? absl::StrFormat("%d threads each", executors.threads) : "a thread each",
      base::Pluralize(cores, "core"));
}

std::string AdviceSuffix(absl::string_view reason, const job::Spec& spec, const std::optional<job::Topology>& topology,
                         const std::vector<std::string>& devices, bool starts_executors) {
  if (reason != scheduler::plan_errors::kTooFewExecutors) return "";
  const std::string advice = AdviseOnTooFewExecutors(spec, topology, devices, starts_executors);
  return advice.empty() ? "" : absl::StrCat(". To have enough executors, ", advice);
}

std::string JoinAdvice(absl::string_view reason, const job::Spec& spec, std::optional<double> join_timeout_seconds) {
  if (reason != scheduler::plan_errors::kTooFewExecutors) return "";
  const job::Strategy& strategy = spec.strategy;
  std::string way = HowToRaiseLimits(spec.executors, std::max(strategy.MinExecutors(), spec.executors.min));
  if (way.empty()) {
    way = "start `fusionctl join` on more machines";
    if (join_timeout_seconds)
      absl::StrAppendFormat(&way, ", sooner, or wait for them longer than by --join-timeout-seconds %g", *join_timeout_seconds);
  }
  std::vector<std::string> less;
  if (strategy.stages > 1) less.push_back("--set spec.strategy.stages=0 (the planner then chooses)");
  if (spec.executors.min > 1) less.push_back("a smaller spec.executors.min");
  return absl::StrCat(". To have enough executors, ", way, less.empty() ? "" : "; or ask for less by ", absl::StrJoin(less, " and "));
}

std::string AdviseOnTooFewExecutors(const job::Spec& spec, const std::optional<job::Topology>& topology,
                                    const std::vector<std::string>& devices, bool starts_executors) {
  const job::Strategy& strategy = spec.strategy;
  int64_t usable = 0, spares = 0;
  for (const LocalExecutor& executor : LocalExecutorsOf(topology, devices)) {
    if (std::find(strategy.exclude.begin(), strategy.exclude.end(), executor.name) != strategy.exclude.end()) continue;
    ++(executor.spare ? spares : usable);
  }
  // As the planner's request has it (planning::MakeRequest): spares that no device is marked for are held back, beyond executors.min.
  const int64_t held_back = std::max<int64_t>(0, spec.executors.spares - spares);
  const int64_t limit = std::min(spec.executors.max.value_or(usable), spec.executors.replicas.value_or(usable));
  const int64_t may_use = std::min(usable, std::max(std::min(limit, usable - held_back), spec.executors.min));
  const int64_t needed = std::max(strategy.MinExecutors(), spec.executors.min);
  const int64_t needed_here = needed + (needed > spec.executors.min ? held_back : 0);

  std::vector<std::string> ways;
  if (usable < needed_here) {
    ways.push_back(HowToHaveMore(needed_here, usable, topology, devices, starts_executors));
    if (needed_here > needed)
      absl::StrAppendFormat(&ways.back(), ", %d of them to be held back as %s", held_back, held_back == 1 ? "a spare" : "spares");
  }
  const std::string raise = HowToRaiseLimits(spec.executors, needed);
  if (!raise.empty()) ways.empty() ? ways.push_back(raise) : absl::StrAppend(&ways.back(), ", and ", raise);
  if (ways.empty()) return "";  // they are enough
  if (raise.empty() && usable >= needed) {
    ways.push_back(absl::StrCat("hold fewer back by --set spec.executors.spares=", spares + usable - needed));
  }
  std::vector<std::string> settings;
  if (strategy.replicas > 1) settings.push_back("--set spec.strategy.replicas=1");
  if (strategy.stages > may_use) settings.push_back("--set spec.strategy.stages=0 (the planner then chooses)");
  if (spec.executors.min > usable) settings.push_back(absl::StrCat("--set spec.executors.min=", usable));
  if (!settings.empty()) ways.push_back(absl::StrCat("ask for less by ", absl::StrJoin(settings, " ")));
  return absl::StrJoin(ways, "; or ");
}

}  // namespace fusionllm::cli
