#include "lib/kube/lease/leader_elector.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/kube/api/api_error.h"

namespace fusionllm::kube {
namespace {

constexpr double kJitter = 1.2;
constexpr int kReleaseTries = 5;

}  // namespace

absl::Status CheckLeaseTimes(const LeaseTimes& times) {
  if (times.retry <= absl::ZeroDuration()) return absl::InvalidArgumentError("leader election: the retry period must be positive");
  if (times.renew_deadline <= times.retry * kJitter) {
    return absl::InvalidArgumentError(absl::StrCat("leader election: the renew deadline (", absl::FormatDuration(times.renew_deadline),
                                                   ") must be more than 1.2 times the retry period (", absl::FormatDuration(times.retry),
                                                   ")"));
  }
  if (times.lease <= times.renew_deadline) {
    return absl::InvalidArgumentError(absl::StrCat("leader election: the lease (", absl::FormatDuration(times.lease),
                                                   ") must be longer than the renew deadline (", absl::FormatDuration(times.renew_deadline),
                                                   ")"));
  }
  if (times.lease != absl::Seconds(absl::ToInt64Seconds(times.lease))) {
    return absl::InvalidArgumentError("leader election: the lease must be whole seconds");
  }
  return absl::OkStatus();
}

std::string NewLeaderIdentity() {
  char host[256] = {};
  if (gethostname(host, sizeof host - 1) != 0) host[0] = '\0';
  std::string uuid;
  std::getline(std::ifstream("/proc/sys/kernel/random/uuid"), uuid);
  return absl::StrCat(host, "_", uuid);
}

LeaderMetrics::LeaderMetrics(metrics::Registry& registry)
    : master_(registry.AddGauge({.name = "master_status",
                                 .help = "1: this process holds the lease; 0: it waits for it.",
                                 .labels = {"name"},
                                 .prefix = "leader_election_"})),
      slow_paths_(registry.AddCounter({.name = "slowpath_total",
                                       .help = "Renewals for which the lease had to be read again.",
                                       .labels = {"name"},
                                       .prefix = "leader_election_"})) {}

LeaderElector::LeaderElector(ApiClient& client, Clock& clock, const LeaderMetrics* metrics, Options options)
    : client_(client),
      clock_(clock),
      metrics_(metrics),
      options_(std::move(options)),
      random_(std::hash<std::string>()(options_.identity)) {
  if (metrics_ != nullptr) {
    metrics_->master_.Set(0, {options_.lease.name});
    metrics_->slow_paths_.Add(0, {options_.lease.name});  // counted from zero: the first is a rise that can be seen
  }
}

LeaderElector::~LeaderElector() {
  {
    const base::MutexLock lock(mutex_);
    ended_ = true;
  }
  for (std::jthread* thread : {&renewer_, &watchdog_}) {
    if (thread->joinable()) thread->request_stop();
  }
}

absl::Status LeaderElector::Acquire(std::stop_token stop) {
  if (absl::Status status = CheckLeaseTimes(options_.times); !status.ok()) return status;
  while (!stop.stop_requested()) {
    const absl::StatusOr<bool> held = TryAcquireOrRenew(stop);
    if (!held.ok() && !stop.stop_requested()) {
      base::Log(base::LogLevel::kWarning, absl::StrCat("lease ", options_.lease.ToString(), ": ", held.status().message()));
    }
    if (held.ok() && *held) {
      Lead();
      return absl::OkStatus();
    }
    clock_.WaitFor(WaitForTurn(), stop);
  }
  return absl::CancelledError("stopped waiting for leadership");
}

// Those who wait look often, so that a lease that was given up is not left alone for long, and at the very moment at which it expires.
absl::Duration LeaderElector::WaitForTurn() {
  const base::MutexLock lock(mutex_);
  const absl::Duration wait = options_.times.retry / 2 * (1 + std::uniform_real_distribution<double>(0, 0.5)(random_));
  if (!observed_.has_value() || observed_->holder().empty()) return wait;
  const absl::Duration expires = ExpiryLocked() - clock_.Monotonic();
  return expires > absl::ZeroDuration() ? std::min(wait, expires) : wait;
}

absl::Duration LeaderElector::ExpiryLocked() const {
  const absl::Duration duration = observed_->duration();
  return observed_at_ + (duration > absl::ZeroDuration() ? duration : options_.times.lease);
}

absl::StatusOr<bool> LeaderElector::TryAcquireOrRenew(std::stop_token stop) {
  const absl::Duration started = clock_.Monotonic();
  std::optional<LeaseRecord> record;
  {
    const base::MutexLock lock(mutex_);
    record = observed_;
  }
  // The holder writes without reading first: usually no other does.
  if (record.has_value() && record->holder() == options_.identity) {
    const absl::StatusOr<bool> written = Write(*record, started, stop);
    if (!written.ok() || *written) return written;
    if (metrics_ != nullptr) metrics_->slow_paths_.Add(1, {options_.lease.name});
  }
  const absl::Status read = Read(stop);
  if (IsApiNotFound(read)) {
    // Deleted by somebody: the count goes on, or a late writer could pass for the newer one.
    const int64_t transitions = !record.has_value() ? 0 : record->transitions() + (record->holder() == options_.identity ? 0 : 1);
    return Write(LeaseRecord(options_.lease, transitions), started, stop);
  }
  if (!read.ok()) return read;
  {
    const base::MutexLock lock(mutex_);
    const bool others = !observed_->holder().empty() && observed_->holder() != options_.identity;
    if (others && clock_.Monotonic() < ExpiryLocked()) return false;
    record = observed_;
  }
  return Write(*record, started, stop);
}

absl::Status LeaderElector::Read(std::stop_token stop) {
  const absl::StatusOr<std::string> text = client_.Get(LeaseResource(), options_.lease, Call(std::move(stop)));
  if (!text.ok()) return text.status();
  absl::StatusOr<LeaseRecord> record = LeaseRecord::Parse(*text);
  if (!record.ok()) return record.status();
  Observe(*std::move(record));
  return absl::OkStatus();
}

void LeaderElector::Observe(LeaseRecord record) {
  const base::MutexLock lock(mutex_);
  if (!observed_.has_value() || !observed_->SameRevision(record)) observed_at_ = clock_.Monotonic();
  observed_ = std::move(record);
}

absl::StatusOr<bool> LeaderElector::Write(LeaseRecord record, absl::Duration started, std::stop_token stop) {
  const bool is_new = record.resource_version().empty();
  record.Hold(options_.identity, options_.times.lease, clock_.Now());
  const absl::StatusOr<std::string> text =
      is_new ? client_.Create(LeaseResource(), options_.lease.ns, record.ToJson(), {}, Call(std::move(stop)))
             : client_.Update(LeaseResource(), options_.lease, record.ToJson(), {}, Call(std::move(stop)));
  // Somebody else was there first.
  if (IsApiConflict(text.status()) || IsApiAlreadyExists(text.status()) || IsApiNotFound(text.status())) return false;
  if (!text.ok()) return text.status();
  absl::StatusOr<LeaseRecord> written = LeaseRecord::Parse(*text);
  if (!written.ok()) return written.status();
  Observe(*std::move(written));
  const base::MutexLock lock(mutex_);
  renewed_at_ = started;  // the writing may have waited long: others may count from any moment since
  changed_.notify_all();
  return true;
}

void LeaderElector::Lead() {
  {
    const base::MutexLock lock(mutex_);
    leads_ = true;
  }
  if (metrics_ != nullptr) metrics_->master_.Set(1, {options_.lease.name});
  renewer_ = std::jthread([this](const std::stop_token& stop) { Renew(stop); });
  // Last: it stops the other.
  watchdog_ = std::jthread([this](const std::stop_token& stop) { Watchdog(stop); });
}

void LeaderElector::Renew(const std::stop_token& stop) {
  while (clock_.WaitFor(options_.times.retry, stop)) {
    const absl::StatusOr<bool> held = TryAcquireOrRenew(stop);
    if (stop.stop_requested()) return;
    if (held.ok() && !*held && leader() != options_.identity && !leader().empty()) {
      return Lose(absl::StrCat("the lease ", options_.lease.ToString(), " is held by ", leader()));
    }
    if (!held.ok()) base::Log(base::LogLevel::kWarning, absl::StrCat("lease ", options_.lease.ToString(), ": ", held.status().message()));
  }
}

void LeaderElector::Watchdog(const std::stop_token& stop) {
  const std::stop_callback wake(stop, [this] {
    const base::MutexLock lock(mutex_);
    changed_.notify_all();
  });
  base::UniqueLock lock(mutex_);
  while (!stop.stop_requested() && leads_) {
    const absl::Duration deadline = renewed_at_ + options_.times.renew_deadline;
    if (clock_.Monotonic() >= deadline) {
      lock.unlock();
      return Lose(absl::StrCat("the lease ", options_.lease.ToString(), " could not be renewed within ",
                               absl::FormatDuration(options_.times.renew_deadline)));
    }
    clock_.WaitUntil(lock, changed_, deadline);
  }
}

void LeaderElector::Lose(const std::string& why) {
  {
    const base::MutexLock lock(mutex_);
    leads_ = false;
    changed_.notify_all();
    if (std::exchange(ended_, true)) return;
  }
  if (metrics_ != nullptr) metrics_->master_.Set(0, {options_.lease.name});
  renewer_.request_stop();
  if (options_.on_lost) options_.on_lost(why);
}

bool LeaderElector::IsLeader() const {
  const base::MutexLock lock(mutex_);
  return leads_ && clock_.Monotonic() < renewed_at_ + options_.times.renew_deadline;
}

int64_t LeaderElector::epoch() const {
  const base::MutexLock lock(mutex_);
  return observed_.has_value() ? observed_->transitions() : 0;
}

std::string LeaderElector::leader() const {
  const base::MutexLock lock(mutex_);
  return observed_.has_value() ? observed_->holder() : std::string();
}

absl::Status LeaderElector::Confirm(std::stop_token stop) {
  const absl::Status read = Read(std::move(stop));
  if (!read.ok() && !IsApiNotFound(read)) return read;
  const std::string holder = read.ok() ? leader() : "";
  if (IsLeader() && holder == options_.identity) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the lease ", options_.lease.ToString(), " is held by ", holder.empty() ? "no one" : holder));
}

absl::Status LeaderElector::Check(absl::Duration timeout) const {
  const base::MutexLock lock(mutex_);
  const absl::Duration silence = clock_.Monotonic() - renewed_at_;
  if (!leads_ || silence <= options_.times.lease + timeout) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("leads, but has not renewed the lease ", options_.lease.ToString(), " for ", absl::FormatDuration(silence)));
}

absl::Status LeaderElector::Release() {
  {
    const base::MutexLock lock(mutex_);
    if (std::exchange(ended_, true) || !leads_) return absl::OkStatus();  // it is not ours any more
  }
  for (std::jthread* thread : {&renewer_, &watchdog_}) {
    thread->request_stop();
    if (thread->joinable()) thread->join();
  }
  std::optional<LeaseRecord> record;
  {
    const base::MutexLock lock(mutex_);
    leads_ = false;
    record = observed_;
  }
  if (metrics_ != nullptr) metrics_->master_.Set(0, {options_.lease.name});
  absl::Status status;
  for (int i = 0; i < kReleaseTries; ++i) {
    if (record->holder() != options_.identity) return absl::OkStatus();
    record->Release(clock_.Now());
    status = client_.Update(LeaseResource(), options_.lease, record->ToJson(), {}, Call({})).status();
    if (!IsApiConflict(status)) return status;
    // Somebody has written since, a renewal of ours that was thought lost perhaps.
    if (status = Read({}); !status.ok()) return IsApiNotFound(status) ? absl::OkStatus() : status;
    const base::MutexLock lock(mutex_);
    record = observed_;
  }
  return status;
}

}  // namespace fusionllm::kube
