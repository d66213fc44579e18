#include "operator/federation/cluster_registry.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/kube/api/api_error.h"
#include "lib/kube/api/json_fields.h"
#include "lib/kubeapi/condition.h"
#include "lib/kubeapi/objects.h"
#include "operator/federation/cluster_facts.h"
#include "operator/federation/cluster_object.h"
#include "operator/manifests/resources.h"

namespace fusionllm::op::federation {
namespace {

using kubeapi::ConditionStatus;
using nlohmann::json;

constexpr absl::Duration kStopTimeout = absl::Seconds(2);
// Of a cluster that had no FusionCluster any more when this process began.
const absl::Duration kGoneTimeout = absl::Seconds(kubeapi::FusionClusterSpec().worker_lost_timeout_seconds);

}  // namespace

ClusterRegistry::ClusterRegistry(RegistryOptions options, kube::ApiClient& hub, MemberContext context)
    : options_(std::move(options)),
      hub_(hub),
      context_(WithRenewal(std::move(context))),
      queue_("fusioncluster", *context_.clock, context_.queue_metrics),
      clusters_(hub, *context_.clock, context_.informer_metrics,
                {.scope = {.resource = manifests::kFusionClusters}, .decode = DecodeCluster}),
      writes_(clusters_, *context_.clock),
      kubeconfigs_({.ns = options_.ns,
                    .providers = options_.access_providers,
                    .changed =
                        [this](const auto& concerned) {
                          for (const kube::ObjectPtr& object : clusters_.All()) {
                            if (concerned(AsCluster(object).cluster.spec)) queue_.Add({"", "", object->meta.name});
                          }
                        }},
                   hub, *context_.clock, context_.informer_metrics),
      tokens_(options_.ns, hub, *context_.clock, context_.may_write,
              [this](const std::string& name) {
                queue_.Add({"", "", name});
              }),
      hub_check_(hub, *context_.clock) {
  clusters_.AddHandler([this](const kube::InformerEvent& event) { queue_.Add({"", "", event.object->meta.name}); });
}

ClusterRegistry::~ClusterRegistry() { Stop(); }

void ClusterRegistry::Start() {
  started_at_ = context_.clock->Monotonic();
  queue_.AddAfter({}, kGoneTimeout, kube::Priority::kLow);  // no cluster is called so: those that Lost() knows nothing else of
  clusters_.Start();
  kube::Controller::Options options{.workers = 4};
  options.report = [](const kube::WorkKey& key, const absl::Status& status) {
    base::Log(base::LogLevel::kWarning, absl::StrCat("cluster ", key.name, ": ", std::string(status.message())));
  };
  options.describe = [](const kube::WorkKey& key) { return base::LogFields{{"cluster", key.name}}; };
  controller_ = std::make_unique<kube::Controller>(
      queue_, *context_.clock, context_.controller_metrics,
      [this](const kube::WorkKey& key, std::stop_token stop) { return Reconcile(key.name, std::move(stop)); }, options);
  connection_monitor_ = std::jthread([this](const std::stop_token& stop) {
    while (context_.clock->WaitFor(kConnectionCheckPeriod, stop)) CheckConnections();
  });
}

void ClusterRegistry::CheckConnections() {
  std::vector<std::pair<std::string, Connected>> connections;
  {
    const base::MutexLock lock(mutex_);
    connections.assign(connections_.begin(), connections_.end());
  }
  for (const auto& [name, last] : connections) {
    if (last.connected.has_value() && *last.connected != last.connection->Connection().ok()) queue_.Add({"", "", name});
  }
}

void ClusterRegistry::Stop() {
  connection_monitor_ = {};
  clusters_.Stop();
  if (controller_ != nullptr) controller_->Stop(kStopTimeout);
  controller_.reset();
  kubeconfigs_.RetainOnly({});
  std::map<std::string, Connected> connections;
  {
    const base::MutexLock lock(mutex_);
    connections.swap(connections_);
  }
  std::vector<std::jthread> ending;
  for (auto& [name, connected] : connections) ending.emplace_back([connection = connected.connection] { connection->Stop(); });
}

void ClusterRegistry::ResyncAll() {
  for (const kube::ObjectPtr& object : clusters_.All()) queue_.Add({"", "", object->meta.name});
}

kube::ReconcileResult ClusterRegistry::Reconcile(const std::string& name, std::stop_token stop) {
  kubeconfigs_.RetainOnly(clusters_.All());
  const bool current = writes_.Seen({"", name});
  const kube::ObjectPtr object = clusters_.Get({"", name});
  if (object == nullptr || !object->meta.deletion_timestamp.empty()) return Leave(name);
  // Which cluster it was found to be may have been written just now. That the cache shows it brings us back.
  if (!current) return kube::ReconcileResult::RequeueAfter(kReconnectPeriod);
  const ClusterObject& registered = AsCluster(object);
  const kubeapi::FusionCluster& cluster = registered.cluster;
  {
    const base::MutexLock lock(mutex_);
    lost_timeouts_[name] = absl::Seconds(cluster.spec.worker_lost_timeout_seconds);
    gone_.erase(name);
  }
  if (context_.connect_metrics != nullptr && !cluster.spec.local.has_value()) context_.connect_metrics->Register(name);
  ClusterFinding finding = Connect(registered, stop);
  finding.token = cluster.spec.kube_config.has_value() ? tokens_.Of(name) : TokenFinding();
  {
    const base::MutexLock lock(mutex_);
    looked_at_.insert(name);
    if (const auto at = connections_.find(name); at != connections_.end()) {
      at->second.connected = finding.connection.ok();
      at->second.ever |= finding.connection.ok();
    }
  }
  kube::ReconcileResult result = Conclude(registered, finding, stop);
  ReportAttempts(cluster, finding, result.after);
  return result;
}

kube::ReconcileResult ClusterRegistry::Conclude(const ClusterObject& object, const ClusterFinding& finding, std::stop_token stop) {
  const kubeapi::FusionCluster& cluster = object.cluster;
  UpdateLost(object, finding);
  if (MayComeBack(cluster, finding)) {
    const std::shared_ptr<MemberConnection> connection = ConnectionOf(cluster.metadata.name);
    const bool soon = connection != nullptr && connection->Age() < options_.connect_timeout;
    return kube::ReconcileResult::RequeueAfter(soon ? kNewConnectionPeriod : kReconnectPeriod);
  }
  if (!options_.may_write_status()) return kube::ReconcileResult::RequeueAfter(kResyncPeriod);
  const absl::Status written = Report(object, finding, std::move(stop));
  if (!written.ok()) return kube::ReconcileResult::Failed(written);
  const bool well = finding.connection.ok() && !absl::IsUnauthenticated(finding.credentials);
  return kube::ReconcileResult::RequeueAfter(well ? kResyncPeriod : kReconnectPeriod);
}

void ClusterRegistry::ReportAttempts(const kubeapi::FusionCluster& cluster, const ClusterFinding& finding, absl::Duration again) const {
  ConnectMetrics* const metrics = context_.connect_metrics;
  if (metrics == nullptr) return;
  const std::string& name = cluster.metadata.name;
  if (cluster.spec.local.has_value()) return metrics->Forget(name);
  metrics->Found(name, finding.connection.ok());
  // With a connection, that is who tries.
  if (ConnectionOf(name) == nullptr && again < absl::InfiniteDuration()) metrics->NextAt(name, context_.clock->Now() + again);
}

ClusterFinding ClusterRegistry::Connect(const ClusterObject& object, std::stop_token stop) {
  const kubeapi::FusionCluster& cluster = object.cluster;
  const std::string& name = cluster.metadata.name;
  if (cluster.spec.local.has_value()) {  // the hub, to which there is a connection already
    Drop(name);
    ClusterFinding finding{.identity = Identify(object, options_.hub_uid), .facts = HubFacts(stop)};
    if (!finding.identity.conflict.empty()) finding.connection = absl::FailedPreconditionError(finding.identity.message);
    return finding;
  }
  const kubeapi::FusionClusterSpec& spec = cluster.spec;
  const Kubeconfigs::Found found = kubeconfigs_.Read(spec, stop);
  const absl::StatusOr<std::string>& kubeconfig = found.text;
  if (!kubeconfig.ok()) {
    // A Secret or ClusterProfile that cannot be read now is no reason to leave a cluster that works.
    const std::shared_ptr<MemberConnection> connection = ConnectionOf(name);
    return {kubeconfig.status(), connection == nullptr ? absl::UnavailableError("no credentials") : connection->Connection(), found.reason};
  }
  const ConnectionParams params{*kubeconfig, spec.qps, spec.burst, spec.max_concurrent_requests};
  std::shared_ptr<MemberConnection> known;
  {
    const base::MutexLock lock(mutex_);
    const auto at = connections_.find(name);
    if (at != connections_.end() && at->second.params == params) known = at->second.connection;
  }
  if (known != nullptr) return Look(object, known);
  absl::StatusOr<std::unique_ptr<kube::ApiClient>> client = options_.connect(*kubeconfig, spec);
  if (!client.ok()) {
    if (context_.connect_metrics != nullptr) context_.connect_metrics->Tried(name);
    // As above: what is wrong with the new one says nothing of the one in use.
    const std::shared_ptr<MemberConnection> connection = ConnectionOf(name);
    return {client.status(), connection == nullptr ? absl::UnavailableError("its credentials are refused") : connection->Connection(),
            spec.cluster_profile_ref.has_value() ? "ProfileRefused" : "KubeconfigRefused"};
  }
  auto connection = std::make_shared<MemberConnection>(name, *std::move(client), context_, [this, name] { queue_.Add({"", "", name}); });
  Connected before;
  {
    const base::MutexLock lock(mutex_);
    before = std::exchange(connections_[name], {params, connection});
    // Lost it stays until it is back, or could be.
    if (lost_.erase(name) > 0 || (before.connection != nullptr && before.connection->lost())) connection->SetLost(true);
  }
  if (before.connection != nullptr) before.connection->Stop();
  base::Log(base::LogLevel::kInfo,
            absl::StrCat("cluster ", name, before.connection == nullptr ? ": connecting" : ": reconnecting, with other settings"));
  return Look(object, connection);
}

ClusterFinding ClusterRegistry::Look(const ClusterObject& object, const std::shared_ptr<MemberConnection>& connection) {
  const kubeapi::FusionCluster& cluster = object.cluster;
  const std::shared_ptr<const MemberFacts> facts = connection->Facts();
  if (facts == nullptr) return ClassifyConnection(connection->Connection());
  ClusterIdentity identity = Identify(object, facts->uid);
  if (!identity.conflict.empty()) {
    // The next connection stays outside until this is over.
    if (connection->admitted()) Drop(cluster.metadata.name);
    return {absl::OkStatus(), absl::FailedPreconditionError(identity.message), "", std::move(identity)};
  }
  if (options_.may_list()) connection->Admit();
  ClusterFinding finding = ClassifyConnection(connection->Connection());
  finding.identity = std::move(identity);
  finding.facts = facts;
  if (finding.credentials.ok()) {
    finding.credentials = connection->Credentials();
    finding.reason = finding.credentials.ok() ? "" : "Unauthorized";
  }
  if (finding.credentials.ok()) {
    finding.credentials = CheckRights(*facts);
    finding.reason = finding.credentials.ok() ? "" : "MissingRights";
  }
  return finding;
}

MemberContext ClusterRegistry::WithRenewal(MemberContext context) {
  context.renew = [this](cache::Member& member, const std::stop_token& stop) { return RenewToken(member, stop); };
  return context;
}

kube::ReconcileResult ClusterRegistry::RenewToken(cache::Member& member, const std::stop_token& stop) {
  const kube::ObjectPtr object = clusters_.Get({"", member.name()});
  std::string kubeconfig;
  {
    const base::MutexLock lock(mutex_);
    const auto at = connections_.find(member.name());
    // Of a connection that has gone nothing is reported any more.
    if (at == connections_.end() || at->second.connection.get() != &member) return kube::ReconcileResult::Done();
    kubeconfig = at->second.params.kubeconfig;
  }
  if (object == nullptr || !AsCluster(object).cluster.spec.kube_config.has_value()) return kube::ReconcileResult::Done();
  return tokens_.Reconcile(member.name(), *AsCluster(object).cluster.spec.kube_config, kubeconfig, member.client(), stop);
}

std::shared_ptr<const MemberFacts> ClusterRegistry::HubFacts(std::stop_token stop) {
  const base::MutexLock lock(hub_check_mutex_);
  const absl::Duration now = context_.clock->Monotonic();
  if (now - hub_checked_at_ >= MemberConnection::kCheckEvery) {
    hub_checked_at_ = now;
    (void)hub_check_.Run(stop);  // what was known stays
  }
  return hub_check_.Facts();
}

ClusterIdentity ClusterRegistry::Identify(const ClusterObject& object, std::string uid) const {
  const kubeapi::FusionCluster& cluster = object.cluster;
  if (uid.empty()) return {};
  const std::string& name = cluster.metadata.name;
  const auto conflict = [&](const char* reason, std::string message) { return ClusterIdentity{uid, reason, std::move(message)}; };
  if (cluster.status.cluster_uid.has_value() && *cluster.status.cluster_uid != uid) {
    return conflict("ClusterReplaced",
                    absl::StrCat("behind its address there is another cluster, with UID ", uid, ", than the one that was registered, ",
                                 *cluster.status.cluster_uid, ": if that is meant, delete the FusionCluster and create it again"));
  }
  if (!cluster.spec.local.has_value() && uid == options_.hub_uid) {
    return conflict("SameCluster", "it is the hub itself, which lends devices by a FusionCluster with `local: {}`");
  }
  for (const kube::ObjectPtr& one : clusters_.All()) {
    const ClusterObject& other = AsCluster(one);
    // The younger one gives way.
    if (other.meta.name == name || !other.meta.deletion_timestamp.empty() || !other.IsOlderThan(object)) continue;
    const std::shared_ptr<MemberConnection> connection = ConnectionOf(other.meta.name);
    const std::shared_ptr<const MemberFacts> facts = connection == nullptr ? nullptr : connection->Facts();
    const std::string others = other.cluster.spec.local.has_value() ? options_.hub_uid
                               : facts != nullptr                   ? facts->uid
                                                                    : other.cluster.status.cluster_uid.value_or("");
    if (others == uid) return conflict("SameCluster", absl::StrCat("it is registered already, as FusionCluster ", other.meta.name));
  }
  return {.uid = std::move(uid)};
}

void ClusterRegistry::UpdateLost(const ClusterObject& object, const ClusterFinding& finding) {
  const kubeapi::FusionCluster& cluster = object.cluster;
  const std::string& name = cluster.metadata.name;
  if (cluster.spec.local.has_value()) return;
  const std::shared_ptr<MemberConnection> connection = ConnectionOf(name);
  if (!finding.connection.ok() && connection != nullptr && connection->Age() < options_.loss_timeout) return;  // it stays what it was
  bool lost = false;
  // Not yet reported: it has been lost from view just now.
  const kubeapi::Condition* const condition = FindCondition(cluster.status.conditions, kubeapi::kConnected);
  if (!finding.connection.ok() && condition != nullptr && condition->status == ConditionStatus::kFalse) {
    lost = context_.clock->Now() - condition->last_transition_time >= absl::Seconds(cluster.spec.worker_lost_timeout_seconds);
  }
  if (connection != nullptr) {
    if (!connection->SetLost(lost)) return;
  } else {
    const base::MutexLock lock(mutex_);
    if (!(lost ? lost_.insert(name).second : lost_.erase(name) > 0)) return;
  }
  const std::string what = lost ? "lost, as it has been away for workerLostTimeoutSeconds" : "no more counted as lost";
  base::Log(lost ? base::LogLevel::kWarning : base::LogLevel::kInfo, absl::StrCat("cluster ", name, ": ", what));
  if (options_.may_write_status())
    options_.record(object.meta, {.warning = lost, .reason = lost ? "ClusterLost" : "ClusterBack", .message = what});
  options_.changed_for_all();
}

bool ClusterRegistry::MayComeBack(const kubeapi::FusionCluster& cluster, const ClusterFinding& finding) const {
  if (finding.connection.ok() || !finding.credentials.ok() || !finding.identity.conflict.empty()) return false;
  std::shared_ptr<MemberConnection> connection;
  {
    const base::MutexLock lock(mutex_);
    const auto at = connections_.find(cluster.metadata.name);
    // That it is listed is not enough: its watches may be about to open.
    if (at == connections_.end() || at->second.ever) return false;
    connection = at->second.connection;
  }
  return connection->Age() < (IsTrue(cluster.status.conditions, kubeapi::kConnected) ? options_.loss_timeout : options_.connect_timeout);
}

absl::Status ClusterRegistry::Report(const ClusterObject& object, const ClusterFinding& finding, std::stop_token stop) {
  const kubeapi::FusionCluster& cluster = object.cluster;
  kubeapi::FusionClusterStatus status = cluster.status;
  const bool is_hub = cluster.spec.local.has_value() && options_.hub != nullptr;
  const std::string not_ours = options_.conflict(is_hub ? options_.hub->name() : cluster.metadata.name);
  SetConditions(finding, not_ours, object.generation, context_.clock->Now(), status);
  if (finding.connection.ok()) Describe(cluster, finding, status);
  status.observed_generation = object.generation;
  if (status == cluster.status) return absl::OkStatus();
  const json body = {{"apiVersion", manifests::kFusionClusters.ApiVersion()},
                     {"kind", manifests::kFusionClusters.kind},
                     // Another of the same name, made meanwhile, must not inherit what is known of this one.
                     {"metadata", {{"name", cluster.metadata.name}, {"uid", object.meta.uid}}},
                     {"status", kubeapi::ToJson(status)}};
  const auto applied = hub_.Apply(manifests::kFusionClusters, {"", cluster.metadata.name}, body.dump(),
                                  {.field_manager = manifests::kFieldManager, .subresource = "status"}, {.stop = std::move(stop)});
  // Gone, or made again: of that one the cache tells.
  if (kube::IsApiNotFound(applied.status()) || kube::IsApiConflict(applied.status())) return absl::OkStatus();
  FUSIONLLM_RETURN_IF_ERROR(applied.status());
  options_.status_written();
  writes_.Wrote(object.meta.Key(), kube::TextAt(kube::ParseJson(*applied), "metadata", "resourceVersion"));
  for (const lifecycle::EventRecord& note : EventsForClusterTransition(cluster.status, status)) options_.record(object.meta, note);
  return absl::OkStatus();
}

void ClusterRegistry::Describe(const kubeapi::FusionCluster& cluster, const ClusterFinding& finding, kubeapi::FusionClusterStatus& status) {
  const std::string& name = cluster.metadata.name;
  const std::shared_ptr<MemberConnection> connection = ConnectionOf(name);
  const cache::Member* const member = cluster.spec.local.has_value() ? options_.hub : connection.get();
  if (member == nullptr) return;
  const absl::Duration now = context_.clock->Monotonic();
  Published last;
  {
    const base::MutexLock lock(mutex_);
    last = published_[name];
  }
  if (finding.facts != nullptr) {
    if (!finding.facts->version.empty()) last.version = finding.facts->version;
    status.api_enablements = finding.facts->apis;
  }
  const std::shared_ptr<const cache::ClusterCapacity> capacity = member->Capacity();
  if (capacity != nullptr && now - last.summary_at >= kSummaryEvery) {
    kubeapi::ResourceSummary summary = SummaryOf(*capacity);
    if (last.summary != summary) {
      last.summary = std::move(summary);
      last.summary_at = now;
    }
  }
  // Seldom another one, and what somebody looks for who has just begun a job.
  if (capacity != nullptr) last.executors = capacity->executors;
  // The status at hand may be older than what was reported last, and an apply that leaves a field out deletes it.
  if (last.version.has_value()) status.kubernetes_version = last.version;
  if (last.summary.has_value()) {
    status.resource_summary = last.summary;
    status.executors = last.executors;
  }
  const base::MutexLock lock(mutex_);
  published_[name] = last;
}

kube::ReconcileResult ClusterRegistry::Leave(const std::string& name) {
  Drop(name);
  if (context_.connect_metrics != nullptr) context_.connect_metrics->Forget(name);
  const absl::Duration now = context_.clock->Monotonic();
  absl::Duration until = started_at_ + kGoneTimeout;
  {
    const base::MutexLock lock(mutex_);
    published_.erase(name);
    tokens_.Forget(name);
    looked_at_.erase(name);
    lost_.erase(name);
    if (const auto timeout = lost_timeouts_.find(name); timeout != lost_timeouts_.end()) {
      gone_.emplace(name, now + timeout->second);
      lost_timeouts_.erase(timeout);
    }
    if (const auto at = gone_.find(name); at != gone_.end()) until = at->second;
  }
  if (now < until) return kube::ReconcileResult::RequeueAfter(until - now);
  options_.changed_for_all();
  return kube::ReconcileResult::Done();
}

bool ClusterRegistry::Lost(const std::string& cluster) const {
  const base::MutexLock lock(mutex_);
  if (lost_timeouts_.contains(cluster)) return lost_.contains(cluster);
  const auto at = gone_.find(cluster);
  return context_.clock->Monotonic() >= (at == gone_.end() ? started_at_ + kGoneTimeout : at->second);
}

void ClusterRegistry::Drop(const std::string& name) {
  Connected gone;  // ended outside of the lock
  {
    const base::MutexLock lock(mutex_);
    const auto at = connections_.find(name);
    if (at == connections_.end()) return;
    gone = std::move(at->second);
    connections_.erase(at);
    published_.erase(name);
  }
  gone.connection->Stop();
  options_.removed(name);
  base::Log(base::LogLevel::kInfo, absl::StrCat("cluster ", name, ": left"));
}

std::shared_ptr<MemberConnection> ClusterRegistry::ConnectionOf(const std::string& name) const {
  const base::MutexLock lock(mutex_);
  const auto at = connections_.find(name);
  return at == connections_.end() ? nullptr : at->second.connection;
}

void ClusterRegistry::Enqueue(const std::string& cluster, const kube::ObjectKey& job, bool urgent) {
  if (const std::shared_ptr<MemberConnection> connection = ConnectionOf(cluster)) connection->Enqueue(job, urgent);
}

std::vector<std::shared_ptr<cache::Member>> ClusterRegistry::Remote() const {
  const base::MutexLock lock(mutex_);
  std::vector<std::shared_ptr<cache::Member>> members;
  for (const auto& [name, connected] : connections_) members.push_back(connected.connection);
  return members;
}

std::map<std::string, absl::Duration> ClusterRegistry::Connecting() const {
  std::map<std::string, absl::Duration> connecting;
  for (const kube::ObjectPtr& object : clusters_.All()) {
    if (AsCluster(object).cluster.spec.local.has_value() || !object->meta.deletion_timestamp.empty()) continue;
    const std::string& name = object->meta.name;
    const base::MutexLock lock(mutex_);
    if (const auto at = connections_.find(name); at != connections_.end()) {
      if (!at->second.connection->listed()) connecting[name] = at->second.connection->Age();
    } else if (!looked_at_.contains(name)) {
      connecting[name] = context_.clock->Monotonic() - started_at_;
    }
  }
  return connecting;
}

void ClusterRegistry::ForEachCluster(absl::FunctionRef<void(const cache::ClusterFacts&)> look) const {
  const std::vector<kube::ObjectPtr> all = clusters_.All();
  for (const kube::ObjectPtr& object : all) look(AsCluster(object).facts);
  if (all.empty()) look({.name = options_.local_name, .labels = {{manifests::kClusterLabel, options_.local_name}}, .local = true});
}

std::map<std::string, cache::ConnectionState> ClusterRegistry::Connections() const {
  std::map<std::string, cache::ConnectionState> connections;
  for (const kube::ObjectPtr& object : clusters_.All()) {
    const kubeapi::FusionCluster& cluster = AsCluster(object).cluster;
    const std::shared_ptr<MemberConnection> connection = ConnectionOf(object->meta.name);
    cache::ConnectionState& connection_state = connections[object->meta.name];
    connection_state.connected = cluster.spec.local.has_value() || (connection != nullptr && connection->Connection().ok());
    // By the status, so that another operator tells the same.
    const kubeapi::Condition* const condition = FindCondition(cluster.status.conditions, kubeapi::kConnected);
    if (connection_state.connected || condition == nullptr || condition->status == ConditionStatus::kTrue) continue;
    connection_state.disconnected_for = std::max(absl::ZeroDuration(), context_.clock->Now() - condition->last_transition_time);
  }
  return connections;
}

std::optional<std::string> ClusterRegistry::LocalName() const {
  const std::vector<kube::ObjectPtr> all = clusters_.All();
  for (const kube::ObjectPtr& object : all) {
    if (AsCluster(object).cluster.spec.local.has_value()) return object->meta.name;
  }
  return all.empty() ? std::optional(options_.local_name) : std::nullopt;
}

}  // namespace fusionllm::op::federation
