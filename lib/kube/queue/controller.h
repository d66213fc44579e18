// Workers that take keys out of a queue and bring what each names closer to what is wanted, until asked to stop.
//
// The function is called on several threads at once, never twice at a time with the same key. It looks at the present state and forgets
// everything between calls. An exception out of it counts as a failure of that key alone. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "lib/base/log_context.h"
#include "lib/kube/clock.h"
#include "lib/kube/queue/work_queue.h"
#include "lib/metrics/registry.h"

namespace fusionllm::kube {

// What became of one key.
struct ReconcileResult {
  absl::Status status;                              // a failure is tried again, ever later
  bool terminal = false;                            // but not this one: only a change of the object can help
  absl::Duration after = absl::InfiniteDuration();  // done for now; look again then

  static ReconcileResult Done() { return {}; }
  static ReconcileResult RequeueAfter(absl::Duration after) { return {.after = after}; }
  static ReconcileResult Failed(absl::Status status) { return {.status = std::move(status)}; }
  static ReconcileResult TerminalError(absl::Status status) { return {.status = std::move(status), .terminal = true}; }
};

// Under the names that dashboards of Kubernetes controllers know (controller_runtime_*). One for a process; its registry must outlive it.
class ControllerMetrics {
 public:
  explicit ControllerMetrics(metrics::Registry& registry);

 private:
  friend class Controller;
  metrics::Gauge max_workers_, active_workers_;
  metrics::Counter reconciles_, errors_, terminal_errors_, panics_, timeouts_;
  metrics::Histogram seconds_;
};

class Controller {
 public:
  // `stop` is requested when the controller no longer waits for the call to end by itself.
  using Reconcile = std::function<ReconcileResult(const WorkKey& key, std::stop_token stop)>;
  // A key that failed, with what was said of it. For logs; called on the worker's thread.
  using Report = std::function<void(const WorkKey& key, const absl::Status& status)>;

  // What lines belong to that are logged while a key is worked on or reported, besides `reconcileID`, which is another one each time.
  using Describe = std::function<base::LogFields(const WorkKey& key)>;

  struct Options {
    int workers = 4;  // one slow key does not hold up the others
    Report report = {};
    Describe describe = {};
  };

  // Everything passed by reference must outlive the controller; `metrics` may be null. Workers start at once.
  Controller(WorkQueue& queue, Clock& clock, ControllerMetrics* metrics, Reconcile reconcile, Options options);
  Controller(WorkQueue& queue, Clock& clock, ControllerMetrics* metrics, Reconcile reconcile)
      : Controller(queue, clock, metrics, std::move(reconcile), Options()) {}
  // Stop(zero).
  ~Controller();

  // Shuts the queue down, lets the workers finish what they have and what waits, for at most `timeout`; then asks those still at work to
  // stop and waits for them. False if that was necessary.
  bool Stop(absl::Duration timeout);

 private:
  void Work();
  void WorkOn(const WorkKey& key);
  ReconcileResult Call(const WorkKey& key);
  base::LogFields FieldsOf(const WorkKey& key);

  WorkQueue& queue_;
  Clock& clock_;
  ControllerMetrics* const metrics_;
  const Reconcile reconcile_;
  const Options options_;
  const uint64_t run_;  // with the count of keys worked on it makes a reconcileID
  std::atomic<uint64_t> begun_ = 0;
  std::stop_source stop_;
  std::vector<std::thread> workers_;
};

}  // namespace fusionllm::kube
