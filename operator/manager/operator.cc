#include "operator/manager/operator.h"

#include <algorithm>
#include <cstdlib>
#include <future>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "operator/federation/log_fields.h"
#include "operator/manager/first_sync.h"
#include "operator/manager/hub_cleanup.h"
#include "operator/manager/liveness.h"
#include "operator/manager/monitoring_page.h"
#include "operator/manifests/resources.h"
#include "operator/placement/plan_call.h"

namespace fusionllm::op::manager {
namespace {

// After a signal to stop: with what members (a second, all at once), events and the Lease take besides it stays below the 30 s that
// Kubernetes gives a Pod.
constexpr absl::Duration kDrainTimeout = absl::Seconds(15);
constexpr absl::Duration kStandbyAgain = absl::Seconds(5);
constexpr absl::Duration kFlushTimeout = absl::Seconds(2);
// Pods end in swarms: jobs that wait for room are looked at once for all that ended within this.
constexpr absl::Duration kGrowthPause = absl::Seconds(1);

void LogFailure(const kube::WorkKey& key, const absl::Status& status) {
  base::Log(base::LogLevel::kWarning,
            absl::StrCat(key.ns.empty() ? "cluster " : "job ", key.ToString(), ": ", std::string(status.message())));
}

// Ends at once: another may lead from now on, and what is still being done here must not be written any more.
void StopLeading(const std::string& why) {
  base::Log(base::LogLevel::kError, absl::StrCat("lost the lead: ", why));
  std::_Exit(daemon::kExitFailed);
}

void AwaitStop(const std::stop_token& stop) {
  std::promise<void> stopped;
  const std::stop_callback on_stop(stop, [&] { stopped.set_value(); });
  stopped.get_future().wait();
}

}  // namespace

Operator::Operator(OperatorOptions options, kube::RestClient& hub, metrics::Registry& registry, OperatorMetrics& metrics,
                   kube::Clock& clock)
    : options_(std::move(options)),
      client_(hub),
      metrics_(metrics),
      clock_(clock),
      elector_(hub, clock, options_.flags.elect ? &metrics.leader : nullptr,
               {.lease = {options_.ns, kProgram}, .identity = options_.identity, .on_lost = StopLeading}),
      fence_(elector_, StopLeading),
      hub_reads_(hub, clock),
      hub_writes_(hub_reads_, [this] { return MayWrite(); }),
      job_queue_("fusionjob", clock, &metrics.queues),
      capacity_queue_("capacity", clock, &metrics.queues),
      cleanup_queue_("hub", clock, &metrics.queues),
      hub_(
          options_.flags.cluster, options_.flags.origin, hub_reads_, hub_writes_, clock, &metrics.informers,
          [this](const kube::ObjectKey& job, bool urgent) { EnqueueJob(job, urgent); }, [this] { EnqueueWaitingJobs(); }),
      jobs_(options_.flags.namespaces, options_.flags.origin, options_.hub_uid, hub_reads_, clock, &metrics.informers,
            [this](const kube::ObjectKey& job, bool urgent) { EnqueueJob(job, urgent); }),
      workloads_(options_.flags.namespaces, hub_reads_, clock, &metrics.informers,
                 [this](const kube::ObjectKey& job, bool urgent) { EnqueueJob(job, urgent); }),
      events_(hub_writes_, clock, &metrics.events, options_.identity),
      tombstones_(hub_writes_, options_.ns, options_.flags.origin, options_.hub_uid),
      collector_(
          hub_writes_, options_.hub_uid, tombstones_,
          [this](const kube::ObjectKey& key, const std::string& uid) { return KnowsJob(key, uid); }, &metrics.orphans),
      member_options_{.user_agent = options_.user_agent,
                      .limits = {.cache_bytes = static_cast<size_t>(options_.flags.member_cache_mib) << 20},
                      .exec_rules = ExecRulesOf(options_.flags),
                      .profile_exec_allowed = federation::CommandsOf(options_.access_providers)},
      members_(MakeRegistryOptions(), hub_writes_, MakeMemberContext()),
      progress_(
          clock, [](const std::string& address) { return FetchMonitoringPage(address, "/progress"); },
          [this](const kube::WorkKey& job) { job_queue_.Add(job, kube::Priority::kLow); },
          [this](const kube::WorkKey& job, const std::string& page) { LearnLinks(job, page); },
          [this](const kube::WorkKey& job, const std::string& uid, const lifecycle::RunEvent& event) {
            events_.RecordOfRun({job.ns, job.name}, uid, event);
          }),
      hints_(options_.flags.scheduler.empty() ? nullptr
                                              : std::make_unique<placement::HintCache>(
                                                    placement::SchedulerPlanCall(options_.flags.scheduler),
                                                    [this](const manifests::JobIdentity& job) {
                                                      EnqueueJob({job.ns, job.name}, /*urgent=*/true);
                                                    },
                                                    clock)),
      reconciler_(MakeReconcilerOptions(), jobs_, hub_, members_, tombstones_, progress_, events_, clock),
      fleet_metrics_(
          registry, [this] { return jobs_.All(); }, [this] { return members_.Connections(); }) {}

federation::MemberContext Operator::MakeMemberContext() {
  return {.origin = options_.flags.origin,
          .clock = &clock_,
          .informer_metrics = &metrics_.informers,
          .queue_metrics = &metrics_.queues,
          .controller_metrics = &metrics_.controllers,
          .connect_metrics = &metrics_.connects,
          .reconcile = [this](const kube::WorkKey& key, std::stop_token stop) { return Reconcile(key, std::move(stop)); },
          .changed = [this](const kube::ObjectKey& job, bool urgent) { EnqueueJob(job, urgent); },
          .may_write = [this] { return MayWrite(); },
          .collect =
              [this](cache::Member& member, std::stop_token stop) {
                return leads_ ? collector_.Collect(member, std::move(stop)) : kube::ReconcileResult::RequeueAfter(kStandbyAgain);
              },
          .on_capacity_increase = [this] { EnqueueWaitingJobs(); },
          .limits = member_options_.limits,
          .namespaces = [this](const std::string& cluster) { return NamespacesIn(cluster); }};
}

federation::RegistryOptions Operator::MakeRegistryOptions() {
  return {.ns = options_.ns,
          .access_providers = options_.access_providers,
          .local_name = options_.flags.cluster,
          .hub_uid = options_.hub_uid,
          .connect =
              [this](const std::string& kubeconfig, const kubeapi::FusionClusterSpec& spec) {
                return federation::ConnectMember(kubeconfig, spec, member_options_, clock_, &metrics_.rest);
              },
          .hub = &hub_,
          .conflict = [this](const std::string& cluster) { return reconciler_.conflicts().In(cluster); },
          .changed_for_all = [this] { jobs_.ResyncAll(); },
          .status_written = [this] { metrics_.jobs.WroteStatus(manifests::kFusionClusters.plural); },
          .removed = [this](const std::string& cluster) { collector_.Leave(cluster); },
          .may_list = [this] { return ready_.load(); },
          .may_write_status = [this] { return leads_.load(); },
          .record = [this](const kube::ObjectMeta& cluster, const lifecycle::EventRecord& note) { events_.RecordOf(cluster, note); }};
}

controller::ReconcilerOptions Operator::MakeReconcilerOptions() {
  return {.images = options_.flags.images,
          .hub_address = options_.flags.hub_address,
          .hub_on_demand = options_.flags.hub_on_demand,
          .enqueue =
              [this](const std::string& cluster, const kube::ObjectKey& job) {
                cluster.empty() ? EnqueueJob(job, /*urgent=*/true) : members_.Enqueue(cluster, job, /*urgent=*/true);
              },
          .fence = options_.flags.elect ? &fence_ : nullptr,
          .hints = hints_.get(),
          .measured = &links_,
          .workloads = &workloads_,
          .metrics = &metrics_.jobs};
}

void Operator::EnqueueJob(const kube::ObjectKey& job, bool urgent) {
  job_queue_.Add({"", job.ns, job.name}, urgent ? kube::Priority::kHigh : kube::Priority::kLow);
}

void Operator::EnqueueWaitingJobs() { capacity_queue_.AddAfter({"", "", "capacity"}, kGrowthPause, kube::Priority::kLow); }

bool Operator::KnowsJob(const kube::ObjectKey& key, const std::string& uid) const {
  if (!jobs_.Watches(key.ns)) return true;  // nothing is known of jobs there, so nothing can be missed
  const auto job = jobs_.Find(key);
  return job != nullptr && job->identity.uid == uid;
}

std::set<std::string> Operator::NamespacesIn(const std::string& cluster) const {
  std::set<std::string> namespaces;
  for (const std::shared_ptr<const cache::JobView>& job : jobs_.All()) {
    const auto& parts = job->status.cluster_statuses;
    if (std::any_of(parts.begin(), parts.end(), [&](const auto& part) { return part.name == cluster; })) {
      namespaces.insert(job->identity.ns);
    }
  }
  return namespaces;
}

void Operator::LearnLinks(const kube::WorkKey& key, const std::string& page) {
  const auto job = jobs_.Find({key.ns, key.name});
  if (job == nullptr || !job->job.ok()) return;
  std::vector<std::string> used;
  for (const kubeapi::ClusterStatus& cluster : job->status.cluster_statuses) used.push_back(cluster.name);
  links_.Learn(page, *job->job, used, members_.Clusters(), clock_.Now());
}

kube::ReconcileResult Operator::Reconcile(const kube::WorkKey& key, std::stop_token stop) {
  if (!leads_) return kube::ReconcileResult::Done();
  return reconciler_.Reconcile(key, std::move(stop));
}

absl::Status Operator::CheckAlive() const {
  absl::Status at_work = CheckWorkers(metrics_.queues);
  return at_work.ok() ? elector_.Check() : at_work;
}

absl::Status Operator::CheckReady() const { return ready_ ? absl::OkStatus() : absl::UnavailableError("the caches are not complete yet"); }

absl::Status Operator::Run(const std::stop_token& stop) {
  hub_.Start();
  jobs_.Start();
  members_.Start();
  absl::Status leading = Sync(stop);
  if (leading.ok()) leading = Lead(stop);
  if (!leading.ok()) {
    members_.Stop();
    return leading;
  }
  leads_ = true;
  EnqueueAll();
  RunControllers(stop);
  members_.Stop();
  workloads_.Stop();
  jobs_.Stop();
  hub_.Stop();
  events_.Flush(kFlushTimeout);
  // Last: the next leader finds nothing of ours still writing.
  if (options_.flags.elect) (void)elector_.Release();
  return absl::OkStatus();
}

absl::Status Operator::Sync(const std::stop_token& stop) {
  const auto complete = [](auto& cache) { return [&cache](absl::Duration timeout) { return cache.WaitForSync(timeout); }; };
  if (!AwaitFirstSync({complete(hub_), complete(jobs_), complete(members_)}, stop, clock_)) {
    if (stop.stop_requested()) return absl::CancelledError("asked to stop before the hub was listed");
    return absl::DeadlineExceededError("cannot list FusionJobs, FusionClusters, pods and config maps of the hub; the log says why");
  }
  ready_ = true;  // a standby is ready to take over
  members_.ResyncAll();
  base::Log(base::LogLevel::kInfo, absl::StrCat("watching FusionJobs on ", client_.server()));
  return absl::OkStatus();
}

absl::Status Operator::Lead(const std::stop_token& stop) {
  if (!options_.flags.elect) return absl::OkStatus();
  FUSIONLLM_RETURN_IF_ERROR(elector_.Acquire(stop));
  base::Log(base::LogLevel::kInfo, "leading");
  return absl::OkStatus();
}

// What came before this process led was left alone.
void Operator::EnqueueAll() {
  members_.ResyncAll();
  for (const std::shared_ptr<const cache::JobView>& job : jobs_.All()) {
    EnqueueJob({job->identity.ns, job->identity.name}, /*urgent=*/false);
    for (const kubeapi::ClusterStatus& part : job->status.cluster_statuses) {
      members_.Enqueue(part.name, {job->identity.ns, job->identity.name}, /*urgent=*/false);
    }
  }
}

void Operator::RunControllers(const std::stop_token& stop) {
  kube::Controller jobs(job_queue_, clock_, &metrics_.controllers,
                        [this](const kube::WorkKey& key, std::stop_token stopping) { return Reconcile(key, std::move(stopping)); },
                        {.workers = static_cast<int>(options_.flags.workers), .report = LogFailure, .describe = federation::LogFieldsOf});
  kube::Controller capacity(capacity_queue_, clock_, &metrics_.controllers,
                            [this](const kube::WorkKey&, const std::stop_token&) {
                              for (const kube::ObjectKey& job : jobs_.JobsShortOfCapacity()) EnqueueJob(job, /*urgent=*/false);
                              return kube::ReconcileResult::Done();
                            },
                            {.workers = 1});
  HubCleanup hub_cleanup([this] { reconciler_.ForgetExpired(); }, hub_, jobs_, collector_, clock_);
  kube::Controller cleanup(cleanup_queue_, clock_, &metrics_.controllers,
                           [&](const kube::WorkKey&, const std::stop_token& stopping) { return hub_cleanup.RunPeriodicCleanup(stopping); },
                           {.workers = 1, .report = LogFailure, .describe = [](const kube::WorkKey& key) {
                              return base::LogFields{{"cluster", key.name}};
                            }});
  cleanup_queue_.Add({"", "", options_.flags.cluster});
  AwaitStop(stop);
  ready_ = false;
  capacity.Stop(absl::ZeroDuration());
  cleanup.Stop(absl::ZeroDuration());
  jobs.Stop(kDrainTimeout);
}

}  // namespace fusionllm::op::manager
