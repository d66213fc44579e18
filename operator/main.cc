// fusion-operator: brings FusionJobs of a hub cluster to their end. See docs/tasks/install-operator.md.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <set>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/daemon/hangup_signal.h"
#include "lib/daemon/process_metrics.h"
#include "lib/daemon/program.h"
#include "lib/daemon/stop_signals.h"
#include "lib/kube/client/connect.h"
#include "lib/kube/http/curl_transport.h"
#include "lib/kube/lease/fenced_client.h"
#include "lib/kube/lease/leader_elector.h"
#include "lib/kube/watch/heartbeat_client.h"
#include "lib/kube/watch/object.h"
#include "operator/cleanup/orphan_collector.h"
#include "operator/cleanup/tombstones.h"
#include "operator/federation/access_providers.h"
#include "operator/federation/cluster_registry.h"
#include "operator/federation/connect_metrics.h"
#include "operator/federation/leader_fence.h"
#include "operator/federation/member_check.h"
#include "operator/federation/member_client.h"
#include "operator/fleet/fleet_metrics.h"
#include "operator/hooks/chart_hooks.h"
#include "operator/manifests/resources.h"
#include "operator/members/cluster_cache.h"
#include "operator/members/log_fields.h"
#include "operator/placement/hint_cache.h"
#include "operator/placement/measured_links.h"
#include "operator/placement/plan_call.h"
#include "operator/process/build_commit.h"
#include "operator/process/config_reload.h"
#include "operator/process/first_sync.h"
#include "operator/process/flags.h"
#include "operator/process/hub_cleanup.h"
#include "operator/process/liveness.h"
#include "operator/process/malloc_trimmer.h"
#include "operator/progress/progress_poller.h"
#include "operator/queueing/workload_cache.h"
#include "operator/reconcile/job_cache.h"
#include "operator/reconcile/job_events.h"
#include "operator/reconcile/job_reconciler.h"
#include "services/version.h"

namespace fusionllm::op {
namespace {

using daemon::kExitBadInput;
using daemon::kExitDone;
using daemon::kExitFailed;
using daemon::ReportError;

// After a signal to stop: with what members (a second, all at once), events and the Lease take besides it stays below the 30 s that
// Kubernetes gives a Pod.
constexpr absl::Duration kDrainTimeout = absl::Seconds(15);
constexpr absl::Duration kStandbyAgain = absl::Seconds(5);
constexpr absl::Duration kFetchTimeout = absl::Seconds(2);
constexpr absl::Duration kFlushTimeout = absl::Seconds(2);
// Pods end in swarms: jobs that wait for room are looked at once for all that ended within this.
constexpr absl::Duration kGrowthPause = absl::Seconds(1);

// A page of a program's monitoring server.
absl::StatusOr<std::string> FetchPage(const std::string& address, const char* page) {
  auto transport = kube::CurlTransport::Make({.server = absl::StrCat("http://", address), .connect_timeout = kFetchTimeout});
  if (!transport.ok()) return transport.status();
  const kube::UnaryLimits limits{.timeout = kFetchTimeout, .max_response_bytes = kMaxProgressBytes};
  auto response = (*transport)->Send({.target = page}, limits, {});
  if (!response.ok()) return response.status();
  if (response->code != 200) return absl::UnavailableError(absl::StrCat("HTTP ", response->code, " ", response->body));
  return response->body;
}

// For those who have nothing but this program's image to look at a running one with.
int AskReady(const std::string& address) {
  const absl::StatusOr<std::string> answer = FetchPage(address, "/readyz");
  if (!answer.ok()) {
    return ReportError(absl::UnavailableError(absl::StrCat("the operator at ", address, " is not ready: ", answer.status().message())));
  }
  std::printf("the operator at %s is ready\n", address.c_str());
  return kExitDone;
}

// By it this hub's objects are known in members.
absl::StatusOr<std::string> ReadHubUid(kube::ApiClient& client, std::stop_token stop) {
  absl::StatusOr<std::string> uid = ReadClusterUid(client, {.stop = std::move(stop)});
  if (uid.ok() && uid->empty()) uid = absl::NotFoundError("there is none");
  if (uid.ok()) return uid;
  return absl::Status(uid.status().code(), absl::StrCat("cannot read namespace kube-system of the hub, whose UID names the hub in what "
                                                        "is made for jobs: ",
                                                        std::string(uid.status().message())));
}

void LogFailure(const kube::WorkKey& key, const absl::Status& status) {
  base::Log(base::LogLevel::kWarning,
            absl::StrCat(key.ns.empty() ? "cluster " : "job ", key.ToString(), ": ", std::string(status.message())));
}

// Ends at once: another may lead from now on, and what is still being done here must not be written any more.
void StopLeading(const std::string& why) {
  base::Log(base::LogLevel::kError, absl::StrCat("lost the lead: ", why));
  std::_Exit(kExitFailed);
}

int Main(int argc, char** argv) {
  LimitMallocArenas();
  Flags flags;
  if (const auto code = ParseFlags(argc, argv, flags)) return *code;
  if (!flags.ask_ready.empty()) {
    if (const int code = AskReady(flags.ask_ready); code != kExitDone || flags.hooks.try_job.empty()) return code;
  }
  daemon::BlockStopSignals();
  daemon::BlockHangupSignal();

  metrics::Registry registry(kProgram, services::kBuildVersion);
  daemon::AddProcessMetrics(registry);
  kube::Clock& clock = kube::RealClock();
  const MallocTrimmer trimmer(clock);
  const kube::RestMetrics rest_metrics(registry);
  const kube::InformerMetrics informer_metrics(registry);
  kube::QueueMetrics queue_metrics(registry);
  kube::ControllerMetrics controller_metrics(registry);
  const kube::EventMetrics event_metrics(registry);
  const kube::LeaderMetrics leader_metrics(registry);
  ConnectMetrics connect_metrics(registry);
  const OrphanMetrics orphan_metrics(registry);
  const JobMetrics job_metrics(registry);
  const ConfigMetrics config_metrics(registry);

  // The name by which this process leads is in all that it asks, too: an audit log tells what the leader before has written.
  const std::string identity = kube::NewLeaderIdentity();
  const std::string commit = BuildCommit();
  const std::string user_agent =
      kube::UserAgent(kProgram, services::kBuildVersion, commit.empty() ? identity : absl::StrCat(commit, " ", identity));
  auto client =
      kube::Connect({.kubeconfig = flags.kubeconfig,
                     .rest = {.user_agent = user_agent, .requests_per_second = flags.hub_qps, .burst = static_cast<int>(flags.hub_burst)}},
                    clock, &rest_metrics);
  if (!client.ok()) return ReportError(client.status());
  if (const auto code = RunHook(flags.hooks, flags.namespaces, **client, clock)) return *code;

  const auto apply = [&](const Flags& now) {
    base::SetLogLevel(base::ParseLogLevel(now.common.log_level).value_or(base::LogLevel::kInfo));
    (*client)->SetRate(now.hub_qps, static_cast<int>(now.hub_burst));
  };
  std::optional<ConfigReload> reload;
  if (!flags.config.empty()) reload.emplace(flags, CommandLine{argc, argv}, apply, clock, config_metrics).Start();
  const daemon::OnHangup on_hangup([&] {
    base::Log(base::LogLevel::kInfo, absl::StrCat("SIGHUP: ", reload ? "reading the settings again" : "nothing to read without --config"));
    if (reload) reload->LookSoon();
  });

  AccessProviders access_providers;
  if (!flags.profile_providers.empty()) {
    absl::StatusOr<AccessProviders> loaded = LoadAccessProviders(flags.profile_providers);
    if (!loaded.ok()) return ReportError(loaded.status());
    access_providers = *std::move(loaded);
  }

  std::stop_source stop;
  std::promise<void> stopped;
  const daemon::OnStopSignal on_stop([&] {
    stop.request_stop();
    stopped.set_value();
  });
  const std::string ns = flags.ns.empty() ? (*client)->default_namespace() : flags.ns;
  const absl::StatusOr<std::string> hub_uid = ReadHubUid(**client, stop.get_token());
  if (stop.stop_requested()) return kExitDone;
  if (!hub_uid.ok()) return ReportError(hub_uid.status(), kExitFailed);

  kube::LeaderElector elector(**client, clock, flags.elect ? &leader_metrics : nullptr,
                              {.lease = {ns, kProgram}, .identity = identity, .on_lost = StopLeading});
  LeaderFence fence(elector, StopLeading);
  const auto may_write = [&] { return flags.elect ? fence.MayWrite() : absl::OkStatus(); };
  kube::HeartbeatClient hub_reads(**client, clock);
  kube::FencedClient hub_client(hub_reads, may_write);

  kube::WorkQueue queue("fusionjob", clock, &queue_metrics);
  const JobChanged changed = [&](const kube::ObjectKey& job, bool urgent) {
    queue.Add({"", job.ns, job.name}, urgent ? kube::Priority::kHigh : kube::Priority::kLow);
  };
  kube::WorkQueue growth("capacity", clock, &queue_metrics);
  kube::WorkQueue house("hub", clock, &queue_metrics);
  // Before, and in a standby, members are connected and listed, so that it can go on at once; nothing else is done.
  std::atomic<bool> leads = false;
  std::atomic<bool> ready = false;  // the hub's caches are complete
  const auto grew = [&] { growth.AddAfter({"", "", "capacity"}, kGrowthPause, kube::Priority::kLow); };
  ClusterCache hub(flags.cluster, flags.origin, hub_reads, hub_client, clock, &informer_metrics, changed, grew);
  JobCache jobs(flags.namespaces, flags.origin, *hub_uid, hub_reads, clock, &informer_metrics, changed);
  WorkloadCache workloads(flags.namespaces, hub_reads, clock, &informer_metrics, changed);
  JobEvents events(hub_client, clock, &event_metrics, identity);
  Tombstones tombstones(hub_client, ns, flags.origin, *hub_uid);
  const auto knows_job = [&](const kube::ObjectKey& key, const std::string& uid) {
    if (!jobs.Watches(key.ns)) return true;  // nothing is known of jobs there, so nothing can be missed
    const auto job = jobs.Find(key);
    return job != nullptr && job->identity.uid == uid;
  };
  OrphanCollector collector(hub_client, *hub_uid, tombstones, knows_job, &orphan_metrics);
  const MemberClientOptions member_options{.user_agent = user_agent,
                                           .limits = {.cache_bytes = static_cast<size_t>(flags.member_cache_mib) << 20},
                                           .exec_rules = ExecRulesOf(flags),
                                           .profile_exec_allowed = CommandsOf(access_providers)};
  std::unique_ptr<JobReconciler> reconciler;  // made below: it and the registry know each other
  const auto reconcile = [&](const kube::WorkKey& key, std::stop_token stop_token) {
    if (!leads) return kube::ReconcileResult::Done();
    return reconciler->Reconcile(key, std::move(stop_token));
  };
  ClusterRegistry registry_of_clusters(
      {.ns = ns,
       .access_providers = access_providers,
       .local_name = flags.cluster,
       .hub_uid = *hub_uid,
       .connect =
           [&](const std::string& kubeconfig, const kubeapi::FusionClusterSpec& spec) {
             return ConnectMember(kubeconfig, spec, member_options, clock, &rest_metrics);
           },
       .hub = &hub,
       .conflict = [&](const std::string& cluster) { return reconciler->conflicts().In(cluster); },
       .changed_for_all = [&] { jobs.TouchAll(); },
       .status_written = [&] { job_metrics.WroteStatus(kFusionClusters.plural); },
       .left = [&](const std::string& cluster) { collector.Leave(cluster); },
       .may_list = [&] { return ready.load(); },
       .may_tell = [&] { return leads.load(); },
       .record = [&](const kube::ObjectMeta& cluster, const Note& note) { events.RecordOf(cluster, note); }},
      hub_client,
      {.origin = flags.origin,
       .clock = &clock,
       .informer_metrics = &informer_metrics,
       .queue_metrics = &queue_metrics,
       .controller_metrics = &controller_metrics,
       .connect_metrics = &connect_metrics,
       .reconcile = reconcile,
       .changed = changed,
       .may_write = may_write,
       .collect =
           [&](Member& member, std::stop_token stop_token) {
             return leads ? collector.Collect(member, std::move(stop_token)) : kube::ReconcileResult::RequeueAfter(kStandbyAgain);
           },
       .grew = grew,
       .limits = member_options.limits,
       .namespaces =
           [&](const std::string& cluster) {
             std::set<std::string> namespaces;
             for (const std::shared_ptr<const JobView>& job : jobs.All()) {
               const auto& parts = job->status.cluster_statuses;
               if (std::any_of(parts.begin(), parts.end(), [&](const auto& part) { return part.name == cluster; })) {
                 namespaces.insert(job->identity.ns);
               }
             }
             return namespaces;
           }});
  MeasuredLinks measured;
  const auto learn = [&](const kube::WorkKey& key, const std::string& page) {
    const auto job = jobs.Find({key.ns, key.name});
    if (job == nullptr || !job->job.ok()) return;
    std::vector<std::string> used;
    for (const kubeapi::ClusterStatus& cluster : job->status.cluster_statuses) used.push_back(cluster.name);
    measured.Learn(page, *job->job, used, registry_of_clusters.Clusters(), clock.Now());
  };
  ProgressPoller progress(
      clock, [](const std::string& address) { return FetchPage(address, "/progress"); },
      [&](const kube::WorkKey& job) { queue.Add(job, kube::Priority::kLow); }, learn,
      [&](const kube::WorkKey& job, const std::string& uid, const RunEvent& event) {
        events.RecordOfRun({job.ns, job.name}, uid, event);
      });
  std::unique_ptr<HintCache> advisor;
  if (!flags.scheduler.empty()) {
    advisor = std::make_unique<HintCache>(
        SchedulerPlanCall(flags.scheduler),
        [&](const JobIdentity& job) {
          queue.Add({"", job.ns, job.name}, kube::Priority::kHigh);
        },
        clock);
  }
  const auto enqueue = [&](const std::string& cluster, const kube::ObjectKey& job) {
    cluster.empty() ? changed(job, /*urgent=*/true) : registry_of_clusters.Enqueue(cluster, job, /*urgent=*/true);
  };
  reconciler = std::make_unique<JobReconciler>(ReconcilerOptions{.images = flags.images,
                                                                 .hub_address = flags.hub_address,
                                                                 .hub_on_demand = flags.hub_on_demand,
                                                                 .enqueue = enqueue,
                                                                 .fence = flags.elect ? &fence : nullptr,
                                                                 .advisor = advisor.get(),
                                                                 .measured = &measured,
                                                                 .workloads = &workloads,
                                                                 .metrics = &job_metrics},
                                               jobs, hub, registry_of_clusters, tombstones, progress, events, clock);

  const FleetMetrics fleet_metrics(
      registry, [&] { return jobs.All(); }, [&] { return registry_of_clusters.Connections(); });

  const auto monitoring = daemon::StartMonitoring(
      flags.common, registry,
      [&] {
        absl::Status at_work = CheckAtWork(queue_metrics);
        return at_work.ok() ? elector.Check() : at_work;
      },
      [&] { return ready ? absl::OkStatus() : absl::UnavailableError("the caches are not complete yet"); });
  if (!monitoring.ok()) return ReportError(monitoring.status());

  hub.Start();
  jobs.Start();
  registry_of_clusters.Start();
  const auto complete = [](auto& cache) { return [&cache](absl::Duration timeout) { return cache.WaitForSync(timeout); }; };
  if (!AwaitFirstSync({complete(hub), complete(jobs), complete(registry_of_clusters)}, stop.get_token(), clock)) {
    registry_of_clusters.Stop();
    if (stop.stop_requested()) return kExitDone;
    return ReportError(
        absl::DeadlineExceededError("cannot list FusionJobs, FusionClusters, pods and config maps of the hub; the log says why"),
        kExitFailed);
  }
  ready = true;  // a standby is ready to take over
  registry_of_clusters.TouchAll();
  base::Log(base::LogLevel::kInfo, absl::StrCat("watching FusionJobs on ", (*client)->server()));
  if (flags.elect) {
    const absl::Status acquired = elector.Acquire(stop.get_token());
    if (!acquired.ok()) registry_of_clusters.Stop();
    if (absl::IsCancelled(acquired)) return kExitDone;
    if (!acquired.ok()) return ReportError(acquired, kExitFailed);
    base::Log(base::LogLevel::kInfo, "leading");
  }
  leads = true;
  // What came meanwhile was left alone.
  registry_of_clusters.TouchAll();
  for (const std::shared_ptr<const JobView>& job : jobs.All()) {
    queue.Add({"", job->identity.ns, job->identity.name}, kube::Priority::kLow);
    for (const kubeapi::ClusterStatus& part : job->status.cluster_statuses) {
      registry_of_clusters.Enqueue(part.name, {job->identity.ns, job->identity.name}, /*urgent=*/false);
    }
  }
  kube::Controller controller(queue, clock, &controller_metrics, reconcile,
                              {.workers = static_cast<int>(flags.workers), .report = LogFailure, .describe = LogFieldsOf});
  const auto look_at_waiting = [&](const kube::WorkKey&, std::stop_token) {
    for (const kube::ObjectKey& job : jobs.JobsShortOfCapacity()) queue.Add({"", job.ns, job.name}, kube::Priority::kLow);
    return kube::ReconcileResult::Done();
  };
  kube::Controller growth_controller(growth, clock, &controller_metrics, look_at_waiting, {.workers = 1});
  HubCleanup house_of_hub([&] { reconciler->Tidy(); }, hub, jobs, collector, clock);
  kube::Controller housekeeper(
      house, clock, &controller_metrics,
      [&](const kube::WorkKey&, const std::stop_token& stop_token) { return house_of_hub.RunPeriodicCleanup(stop_token); },
      {.workers = 1, .report = LogFailure, .describe = [](const kube::WorkKey& key) {
         return base::LogFields{{"cluster", key.name}};
       }});
  house.Add({"", "", flags.cluster});
  stopped.get_future().wait();
  ready = false;
  growth_controller.Stop(absl::ZeroDuration());
  housekeeper.Stop(absl::ZeroDuration());
  controller.Stop(kDrainTimeout);
  registry_of_clusters.Stop();
  workloads.Stop();
  jobs.Stop();
  hub.Stop();
  events.Flush(kFlushTimeout);
  // Last: the next leader finds nothing of ours still writing.
  if (flags.elect) (void)elector.Release();
  return kExitDone;
}

}  // namespace
}  // namespace fusionllm::op

int main(int argc, char** argv) { return fusionllm::op::Main(argc, argv); }
