// One of several equal processes leads; the others wait. By a Lease object on the API server, as client-go does it.
//
// No process believes another's clock: a lease counts as abandoned when this process has seen no writing of its holder for the lease's
// duration, by its own monotonic clock. A leader that could not renew for `renew_deadline` has lost, whatever its other threads are doing:
// a watchdog of its own says so, well before anybody else may take over. What it then calls should end the process: a shutdown that takes
// its time may still be writing when the next leader begins.
//
// Thread-safe, one Acquire() at a time.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <optional>
#include <random>
#include <stop_token>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "lib/base/mutex.h"
#include "lib/kube/client/api_client.h"
#include "lib/kube/clock.h"
#include "lib/kube/lease/lease_record.h"
#include "lib/metrics/registry.h"

namespace fusionllm::kube {

struct LeaseTimes {
  absl::Duration lease = absl::Seconds(15);           // others wait so long after the leader's last sign of life; whole seconds
  absl::Duration renew_deadline = absl::Seconds(10);  // the leader gives up so long after its last success
  absl::Duration retry = absl::Seconds(2);            // between renewals; those who wait look twice as often
};

// lease > renew_deadline > 1.2 retry > 0. InvalidArgument otherwise: two leaders at once would be possible.
absl::Status CheckLeaseTimes(const LeaseTimes& times);

// HOSTNAME_UUID: another one for each process, even in the same place.
std::string NewLeaderIdentity();

// leader_election_*, as dashboards of Kubernetes controllers know them. One for a process; its registry must outlive it.
class LeaderMetrics {
 public:
  explicit LeaderMetrics(metrics::Registry& registry);

 private:
  friend class LeaderElector;
  metrics::Gauge master_;
  metrics::Counter slow_paths_;
};

class LeaderElector {
 public:
  // Called once, on a thread of the elector, when leadership was lost. Not after Release() was called.
  using OnLost = std::function<void(const std::string& why)>;

  struct Options {
    ObjectKey lease;
    std::string identity = NewLeaderIdentity();
    LeaseTimes times = {};
    OnLost on_lost;
  };

  // What is passed by reference must outlive the elector; `metrics` may be null.
  LeaderElector(ApiClient& client, Clock& clock, const LeaderMetrics* metrics, Options options);
  ~LeaderElector();  // without Release(), others wait until the lease has expired

  // Blocks until this process leads (OK), or `stop` is requested (Cancelled). InvalidArgument for times that CheckLeaseTimes refuses.
  // Leads from then on, renewing by itself, until it loses or releases the lease; only once.
  absl::Status Acquire(std::stop_token stop);

  // Whether it still leads. Turns false at the deadline by itself, even if no thread gets to run.
  bool IsLeader() const;
  // Greater with each change of leaders, as long as the Lease object is not deleted: goes with writes that a late one must not undo.
  int64_t epoch() const;
  // Asks the server who holds the lease. OK: this process, now. FailedPrecondition: another, or none. Else: no answer. Blocks.
  absl::Status Confirm(std::stop_token stop);
  // Who holds the lease, as last seen; empty: no process.
  std::string leader() const;
  // Unavailable for a leader that has not renewed for the length of the lease and `timeout`, and still runs: for liveness probes.
  absl::Status Check(absl::Duration timeout = absl::Seconds(20)) const;

  // Gives the lease up, so that another can lead at once. Only when all that a leader does has stopped.
  absl::Status Release();

 private:
  // Writes the lease if it is free or ours. True: it is ours; false: it is another's, or was written meanwhile.
  absl::StatusOr<bool> TryAcquireOrRenew(std::stop_token stop);
  absl::StatusOr<bool> Write(LeaseRecord record, absl::Duration started, std::stop_token stop);
  absl::Status Read(std::stop_token stop);
  void Observe(LeaseRecord record);
  absl::Duration WaitForTurn();
  absl::Duration ExpiryLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Renew(const std::stop_token& stop);
  void Watchdog(const std::stop_token& stop);
  void Lose(const std::string& why);
  void Lead();
  CallOptions Call(std::stop_token stop) const { return {.timeout = options_.times.renew_deadline / 2, .stop = std::move(stop)}; }

  ApiClient& client_;
  Clock& clock_;
  const LeaderMetrics* const metrics_;
  const Options options_;

  mutable base::Mutex mutex_;
  std::condition_variable changed_;
  std::optional<LeaseRecord> observed_ ABSL_GUARDED_BY(mutex_);
  absl::Duration observed_at_ ABSL_GUARDED_BY(mutex_);  // when its last change was seen
  absl::Duration renewed_at_ ABSL_GUARDED_BY(mutex_);   // when the last successful writing was begun
  bool leads_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;  // lost or released
  std::mt19937_64 random_ ABSL_GUARDED_BY(mutex_);
  std::jthread renewer_, watchdog_;
};

}  // namespace fusionllm::kube
