// What happens to jobs and clusters, as events that `kubectl describe` shows, and in the log. Thread-safe.
#pragma once

#include <string>

#include "absl/time/time.h"
#include "lib/kube/api/resource.h"
#include "lib/kube/events/event_recorder.h"
#include "lib/kube/watch/object.h"
#include "operator/controller/job_reconciler.h"
#include "operator/lifecycle/run_events.h"

namespace fusionllm::op::controller {

class JobEvents : public EventSink {
 public:
  // As EventRecorder; `identity`: of this process.
  JobEvents(kube::ApiClient& client, kube::Clock& clock, const kube::EventMetrics* metrics, const std::string& identity);

  void Record(const manifests::JobIdentity& job, const lifecycle::EventRecord& note) override;
  // Of a cluster; the log has it already.
  void RecordOf(const kube::ObjectMeta& cluster, const lifecycle::EventRecord& note);
  // What the job's broker tells of its run, in its name; the broker's own log has it.
  void RecordOfRun(const kube::ObjectKey& job, const std::string& uid, const lifecycle::RunEvent& event);
  void Flush(absl::Duration timeout) { recorder_.Flush(timeout); }

 private:
  kube::EventRecorder recorder_;
};

}  // namespace fusionllm::op::controller
