#include "lib/kube/queue/controller.h"

#include <exception>

#include "absl/random/random.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace fusionllm::kube {
namespace {

metrics::FamilySpec ControllerSpec(const std::string& name, const std::string& help, std::vector<std::string> labels = {"controller"}) {
  return {.name = name, .help = help, .labels = std::move(labels), .prefix = "controller_runtime_"};
}

}  // namespace

ControllerMetrics::ControllerMetrics(metrics::Registry& registry)
    : max_workers_(registry.AddGauge(ControllerSpec("max_concurrent_reconciles", "Workers of the controller."))),
      active_workers_(registry.AddGauge(ControllerSpec("active_workers", "Workers that have a key now."))),
      reconciles_(registry.AddCounter(ControllerSpec(
          "reconcile_total", "Keys worked on; result is success, error, requeue or requeue_after.", {"controller", "result"}))),
      errors_(registry.AddCounter(ControllerSpec("reconcile_errors_total", "Keys that failed."))),
      terminal_errors_(registry.AddCounter(
          ControllerSpec("terminal_reconcile_errors_total", "Keys that failed and are not tried again by themselves."))),
      panics_(registry.AddCounter(ControllerSpec("reconcile_panics_total", "Keys that failed with an exception."))),
      timeouts_(
          registry.AddCounter(ControllerSpec("reconcile_timeouts_total", "Keys that failed because something was not done in time."))),
      seconds_(registry.AddHistogram(ControllerSpec("reconcile_time_seconds", "Time spent on a key."),
                                     {.005, .01, .025, .05, .1,  .15, .2,  .25, .3, .35, .4, .45, .5, .6, .7, .8, .9, 1,  1.25, 1.5,
                                      1.75, 2,   2.5,  3,   3.5, 4,   4.5, 5,   6,  7,   8,  9,   10, 15, 20, 25, 30, 40, 50,   60})) {}

Controller::Controller(WorkQueue& queue, Clock& clock, ControllerMetrics* metrics, Reconcile reconcile, Options options)
    : queue_(queue),
      clock_(clock),
      metrics_(metrics),
      reconcile_(std::move(reconcile)),
      options_(std::move(options)),
      run_(absl::Uniform<uint64_t>(absl::BitGen())) {
  if (metrics_ != nullptr) {
    metrics_->max_workers_.Set(options_.workers, {queue_.name()});
    metrics_->active_workers_.Set(0, {queue_.name()});
    // Counted from zero: the first failure is a rise that can be seen.
    for (const char* result : {"success", "error", "requeue", "requeue_after"}) metrics_->reconciles_.Add(0, {queue_.name(), result});
    for (const metrics::Counter& failures : {metrics_->errors_, metrics_->terminal_errors_, metrics_->panics_, metrics_->timeouts_}) {
      failures.Add(0, {queue_.name()});
    }
  }
  for (int i = 0; i < options_.workers; ++i) workers_.emplace_back([this] { Work(); });
}

Controller::~Controller() { Stop(absl::ZeroDuration()); }

bool Controller::Stop(absl::Duration timeout) {
  if (workers_.empty()) return true;
  const bool drained = queue_.ShutDownWithDrain(timeout);
  stop_.request_stop();
  for (std::thread& worker : workers_) worker.join();
  workers_.clear();
  return drained;
}

void Controller::Work() {
  while (const std::optional<WorkKey> key = queue_.Get()) {
    if (!stop_.stop_requested()) WorkOn(*key);
    queue_.Done(*key);
  }
}

void Controller::WorkOn(const WorkKey& key) {
  const base::LogContext context(FieldsOf(key));
  const absl::Duration started = clock_.Monotonic();
  if (metrics_ != nullptr) metrics_->active_workers_.Add(1, {queue_.name()});
  const ReconcileResult result = Call(key);
  const char* outcome = "success";
  if (!result.status.ok()) {
    outcome = "error";
    if (options_.report) options_.report(key, result.status);
    if (result.terminal) {
      queue_.Forget(key);
    } else {
      queue_.AddRateLimited(key);
    }
  } else {
    queue_.Forget(key);
    if (result.after <= absl::ZeroDuration()) {
      outcome = "requeue";
      queue_.AddRateLimited(key);
    } else if (result.after < absl::InfiniteDuration()) {
      outcome = "requeue_after";
      queue_.AddAfter(key, result.after);
    }
  }
  if (metrics_ == nullptr) return;
  metrics_->reconciles_.Add(1, {queue_.name(), outcome});
  if (!result.status.ok()) metrics_->errors_.Add(1, {queue_.name()});
  if (absl::IsDeadlineExceeded(result.status)) metrics_->timeouts_.Add(1, {queue_.name()});
  if (!result.status.ok() && result.terminal) metrics_->terminal_errors_.Add(1, {queue_.name()});
  metrics_->seconds_.Observe(absl::ToDoubleSeconds(clock_.Monotonic() - started), {queue_.name()});
  metrics_->active_workers_.Add(-1, {queue_.name()});
}

base::LogFields Controller::FieldsOf(const WorkKey& key) {
  base::LogFields fields = options_.describe ? options_.describe(key) : base::LogFields();
  fields.emplace_back("reconcileID", absl::StrFormat("%016x-%d", run_, ++begun_));
  return fields;
}

// Libraries below may throw; one object that makes them do so must not end the process with all the others.
ReconcileResult Controller::Call(const WorkKey& key) {
  std::string what = "an exception of unknown type";
  try {
    return reconcile_(key, stop_.get_token());
  } catch (const std::exception& e) {
    what = e.what();
  } catch (...) {
  }
  if (metrics_ != nullptr) metrics_->panics_.Add(1, {queue_.name()});
  return ReconcileResult::Failed(absl::InternalError(absl::StrCat("the reconciler threw: ", what)));
}

}  // namespace fusionllm::kube
