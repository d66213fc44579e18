#include "operator/federation/member_connection.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "operator/federation/log_fields.h"

namespace fusionllm::op::federation {
namespace {

constexpr int kWorkers = 2;
constexpr absl::Duration kStopTimeout = absl::Seconds(1);

// No job is called so: the work in a cluster that belongs to none.
kube::WorkKey HouseKey(const std::string& cluster) { return {cluster, "", "cleanup"}; }
kube::WorkKey TokenKey(const std::string& cluster) { return {cluster, "", "token"}; }
kube::WorkKey IdentityCheckKey(const std::string& cluster) { return {cluster, "", "probe"}; }

}  // namespace

kube::ReflectorLimits MemberLimits::OfEachCache() const {
  kube::ReflectorLimits limits;
  limits.max_object_bytes = object_bytes;
  limits.max_bytes = cache_bytes / cache::ClusterCache::kCaches;
  return limits;
}

MemberConnection::MemberConnection(std::string name, std::unique_ptr<kube::ApiClient> client, const MemberContext& context,
                                   std::function<void()> on_checked)
    : name_(std::move(name)),
      client_(std::move(client)),
      on_checked_(std::move(on_checked)),
      reads_(*client_, *context.clock, context.heartbeat),
      writes_(*client_, context.may_write),
      clock_(*context.clock),
      queue_(absl::StrCat(kMemberQueue, name_), *context.clock, context.queue_metrics),
      check_(reads_, *context.clock,
             context.namespaces == nullptr ? nullptr : MemberCheck::Namespaces([this, of = context.namespaces] { return of(name_); })),
      cache_(
          name_, context.origin, reads_, writes_, *context.clock, context.informer_metrics,
          [this, changed = context.changed](const kube::ObjectKey& job, bool urgent) {
            Enqueue(job, urgent);
            changed(job, urgent);
          },
          context.on_capacity_increase, context.limits.OfEachCache()),
      compare_at_(context.clock->Monotonic() + cache::ClusterCache::kCompareEvery) {
  kube::Controller::Options options{.workers = kWorkers};
  options.report = [name = name_](const kube::WorkKey& key, const absl::Status& status) {
    const std::string what = key.ns.empty() ? absl::StrCat("cluster ", name) : absl::StrCat("job ", key.ToString());
    base::Log(base::LogLevel::kWarning, absl::StrCat(what, ": ", std::string(status.message())));
  };
  options.describe = LogFieldsOf;
  const auto work = [this, &context](const kube::WorkKey& key, std::stop_token stop) {
    if (key == IdentityCheckKey(name_)) return Check(context, stop);
    if (key == TokenKey(name_)) return context.renew ? context.renew(*this, stop) : kube::ReconcileResult::Done();
    return key.ns.empty() ? RunPeriodicCleanup(context, stop) : context.reconcile(key, std::move(stop));
  };
  controller_ = std::make_unique<kube::Controller>(queue_, *context.clock, context.controller_metrics, work, options);
  queue_.Add(IdentityCheckKey(name_));
}

void MemberConnection::Admit() {
  const base::MutexLock lock(stop_mutex_);
  if (controller_ == nullptr || admitted_) return;
  cache_.Start();
  admitted_ = true;
  queue_.Add(HouseKey(name_), kube::Priority::kLow);
  queue_.Add(TokenKey(name_), kube::Priority::kLow);
  CheckSoon();  // what we may do there
}

void MemberConnection::Stop() {
  const base::MutexLock lock(stop_mutex_);
  if (controller_ == nullptr) return;
  cache_.Stop();
  controller_->Stop(kStopTimeout);
  controller_.reset();
}

absl::Status MemberConnection::Connection() const {
  if (admitted_) return cache_.Connection();
  absl::Status answer = check_.LastStatus();
  return answer.ok() ? absl::UnavailableError("not listed yet") : answer;
}

absl::Status MemberConnection::Credentials() const {
  if (absl::Status watches = cache_.Credentials(); admitted_ && !watches.ok()) return watches;
  absl::Status answer = check_.LastStatus();
  return absl::IsUnauthenticated(answer) ? answer : absl::OkStatus();
}

kube::ReconcileResult MemberConnection::Check(const MemberContext& context, const std::stop_token& stop) {
  ConnectMetrics* const metrics = context.connect_metrics;
  if (metrics != nullptr && !reachable()) metrics->Tried(name_);
  // What we may do is asked by a POST, so not by a standby.
  const absl::Status answer = check_.Run(stop, /*rights=*/admitted_ && context.may_write().ok());
  const absl::Duration again = answer.ok() && reachable() ? kCheckEvery : kRecheckAfter;
  if (metrics != nullptr) metrics->NextAt(name_, clock_.Now() + again);
  on_checked_();
  return kube::ReconcileResult::RequeueAfter(again);
}

void MemberConnection::CheckSoon() { queue_.Add(IdentityCheckKey(name_)); }

void MemberConnection::Enqueue(const kube::ObjectKey& job, bool urgent) {
  queue_.Add({name_, job.ns, job.name}, urgent ? kube::Priority::kHigh : kube::Priority::kLow);
}

kube::ReconcileResult MemberConnection::RunPeriodicCleanup(const MemberContext& context, const std::stop_token& stop) {
  if (reachable() && clock_.Monotonic() >= compare_at_) {
    compare_at_ = clock_.Monotonic() + cache::ClusterCache::kCompareEvery;
    if (const absl::Status compared = cache_.CompareWithServer(stop); !compared.ok()) {
      base::Log(base::LogLevel::kDebug, absl::StrCat("cluster ", name_, ": caches not compared: ", std::string(compared.message())));
    }
  }
  return context.collect ? context.collect(*this, stop) : kube::ReconcileResult::RequeueAfter(cache::ClusterCache::kCompareEvery);
}

}  // namespace fusionllm::op::federation
