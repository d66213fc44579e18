#include "operator/manager/chart_hooks.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <stop_token>

#include "lib/daemon/program.h"
#include "lib/daemon/stop_signals.h"
#include "operator/manager/dry_run_job.h"
#include "operator/manager/stop_jobs.h"

namespace fusionllm::op::manager {
namespace {

constexpr char kSuspend[] = "suspend", kDelete[] = "delete";

int Stop(const HookFlags& flags, const std::vector<std::string>& namespaces, kube::ApiClient& hub, kube::Clock& clock) {
  std::stop_source stop;
  const daemon::OnStopSignal on_stop([&] { stop.request_stop(); });
  const StopMode how = flags.stop_jobs == kDelete ? StopMode::kDelete : StopMode::kSuspend;
  const absl::Status status =
      StopJobs(hub, clock, {.how = how, .namespaces = namespaces, .timeout = absl::Seconds(flags.stop_timeout_s)}, stop.get_token());
  if (!status.ok()) return daemon::ReportError(status);
  std::printf(how == StopMode::kDelete ? "no job is left\n" : "no job runs\n");
  return daemon::kExitDone;
}

}  // namespace

void AddHookFlags(CLI::App& app, HookFlags& flags) {
  app.add_option("--stop-jobs", flags.stop_jobs,
                 "Have all jobs suspended, or deleted, by the operator that runs, wait until it is done, and end: 0 done")
      ->check(CLI::IsMember({kSuspend, kDelete}));
  app.add_option("--stop-timeout-seconds", flags.stop_timeout_s, "How long --stop-jobs waits, in seconds")
      ->check(CLI::Range(1, 86'400))
      ->capture_default_str();
  app.add_option("--dry-run-job", flags.dry_run_job,
                 "Ask the API server by dry runs whether it takes FusionJobs in this namespace, and end: 0 yes");
}

std::optional<int> RunHook(const HookFlags& flags, const std::vector<std::string>& namespaces, kube::ApiClient& hub, kube::Clock& clock) {
  if (!flags.stop_jobs.empty()) return Stop(flags, namespaces, hub, clock);
  if (flags.dry_run_job.empty()) return std::nullopt;
  if (const absl::Status status = DryRunJob(hub, flags.dry_run_job); !status.ok()) return daemon::ReportError(status);
  std::printf("FusionJobs are taken, and checked\n");
  return daemon::kExitDone;
}

}  // namespace fusionllm::op::manager
