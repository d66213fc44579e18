// fusion-operator: brings FusionJobs of a hub cluster to their end. See docs/tasks/install-operator.md.
#include <cstdio>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/daemon/hangup_signal.h"
#include "lib/daemon/process_metrics.h"
#include "lib/daemon/program.h"
#include "lib/daemon/stop_signals.h"
#include "lib/kube/client/connect.h"
#include "operator/federation/member_check.h"
#include "operator/manager/build_commit.h"
#include "operator/manager/chart_hooks.h"
#include "operator/manager/config_reload.h"
#include "operator/manager/flags.h"
#include "operator/manager/malloc_trimmer.h"
#include "operator/manager/monitoring_page.h"
#include "operator/manager/operator.h"
#include "services/version.h"

namespace fusionllm::op {
namespace {

using daemon::kExitDone;
using daemon::kExitFailed;
using daemon::ReportError;

// For those who have nothing but this program's image to look at a running one with.
int CheckReady(const std::string& address) {
  const absl::StatusOr<std::string> answer = manager::FetchMonitoringPage(address, "/readyz");
  if (!answer.ok()) {
    return ReportError(absl::UnavailableError(absl::StrCat("the operator at ", address, " is not ready: ", answer.status().message())));
  }
  std::printf("the operator at %s is ready\n", address.c_str());
  return kExitDone;
}

// By it this hub's objects are known in members.
absl::StatusOr<std::string> ReadHubUid(kube::ApiClient& client, std::stop_token stop) {
  absl::StatusOr<std::string> uid = federation::ReadClusterUid(client, {.stop = std::move(stop)});
  if (uid.ok() && uid->empty()) uid = absl::NotFoundError("there is none");
  if (uid.ok()) return uid;
  return absl::Status(uid.status().code(), absl::StrCat("cannot read namespace kube-system of the hub, whose UID names the hub in what "
                                                        "is made for jobs: ",
                                                        std::string(uid.status().message())));
}

int Main(int argc, char** argv) {
  manager::LimitMallocArenas();
  manager::Flags flags;
  if (const auto code = manager::ParseFlags(argc, argv, flags)) return *code;
  if (!flags.check_ready.empty()) {
    if (const int code = CheckReady(flags.check_ready); code != kExitDone || flags.hooks.dry_run_job.empty()) return code;
  }
  daemon::BlockStopSignals();
  daemon::BlockHangupSignal();

  metrics::Registry registry(manager::kProgram, services::kBuildVersion);
  daemon::AddProcessMetrics(registry);
  kube::Clock& clock = kube::RealClock();
  const manager::MallocTrimmer trimmer(clock);
  manager::OperatorMetrics metrics(registry);

  // The name by which this process leads is in all that it asks, too: an audit log tells what the leader before has written.
  const std::string identity = kube::NewLeaderIdentity();
  const std::string commit = manager::BuildCommit();
  const std::string user_agent =
      kube::UserAgent(manager::kProgram, services::kBuildVersion, commit.empty() ? identity : absl::StrCat(commit, " ", identity));
  const auto hub =
      kube::Connect({.kubeconfig = flags.kubeconfig,
                     .rest = {.user_agent = user_agent, .requests_per_second = flags.hub_qps, .burst = static_cast<int>(flags.hub_burst)}},
                    clock, &metrics.rest);
  if (!hub.ok()) return ReportError(hub.status());
  if (const auto code = manager::RunHook(flags.hooks, flags.namespaces, **hub, clock)) return *code;

  const auto apply = [&](const manager::Flags& now) {
    base::SetLogLevel(base::ParseLogLevel(now.common.log_level).value_or(base::LogLevel::kInfo));
    (*hub)->SetRate(now.hub_qps, static_cast<int>(now.hub_burst));
  };
  std::optional<manager::ConfigReload> reload;
  if (!flags.config.empty()) reload.emplace(flags, manager::CommandLine{argc, argv}, apply, clock, metrics.config).Start();
  const daemon::OnHangup on_hangup([&] {
    base::Log(base::LogLevel::kInfo, absl::StrCat("SIGHUP: ", reload ? "reading the settings again" : "nothing to read without --config"));
    if (reload) reload->LookSoon();
  });

  manager::OperatorOptions options{.flags = flags, .identity = identity, .user_agent = user_agent};
  if (!flags.profile_providers.empty()) {
    absl::StatusOr<federation::AccessProviders> loaded = federation::LoadAccessProviders(flags.profile_providers);
    if (!loaded.ok()) return ReportError(loaded.status());
    options.access_providers = *std::move(loaded);
  }

  std::stop_source stop;
  const daemon::OnStopSignal on_stop([&] { stop.request_stop(); });
  options.ns = flags.ns.empty() ? (*hub)->default_namespace() : flags.ns;
  absl::StatusOr<std::string> hub_uid = ReadHubUid(**hub, stop.get_token());
  if (stop.stop_requested()) return kExitDone;
  if (!hub_uid.ok()) return ReportError(hub_uid.status(), kExitFailed);
  options.hub_uid = *std::move(hub_uid);

  manager::Operator op(std::move(options), **hub, registry, metrics, clock);
  const auto monitoring = daemon::StartMonitoring(
      flags.common, registry, [&] { return op.CheckAlive(); }, [&] { return op.CheckReady(); });
  if (!monitoring.ok()) return ReportError(monitoring.status());
  const absl::Status ended = op.Run(stop.get_token());
  if (ended.ok() || absl::IsCancelled(ended)) return kExitDone;
  return ReportError(ended, kExitFailed);
}

}  // namespace
}  // namespace fusionllm::op

int main(int argc, char** argv) { return fusionllm::op::Main(argc, argv); }
