#include "operator/controller/job_events.h"

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "operator/manifests/resources.h"

namespace fusionllm::op::controller {
namespace {

kube::EventType TypeOf(bool warning) { return warning ? kube::EventType::kWarning : kube::EventType::kNormal; }

kube::ObjectReference JobReference(const kube::ObjectKey& job, const std::string& uid) {
  return {manifests::kFusionJobs.ApiVersion(), manifests::kFusionJobs.kind, job, uid};
}

}  // namespace

JobEvents::JobEvents(kube::ApiClient& client, kube::Clock& clock, const kube::EventMetrics* metrics, const std::string& identity)
    : recorder_(client, clock, metrics, "fusionllm.io/operator", identity) {}

void JobEvents::Record(const manifests::JobIdentity& job, const lifecycle::EventRecord& note) {
  base::Log(note.warning ? base::LogLevel::kWarning : base::LogLevel::kInfo,
            absl::StrCat("job ", job.ns, "/", job.name, ": ", note.reason, ": ", note.message));
  recorder_.Record({.regarding = JobReference({job.ns, job.name}, job.uid),
                    .type = TypeOf(note.warning),
                    .reason = note.reason,
                    .action = "Reconcile",
                    .note = note.message});
}

void JobEvents::RecordOf(const kube::ObjectMeta& cluster, const lifecycle::EventRecord& note) {
  recorder_.Record(
      {.regarding = {manifests::kFusionClusters.ApiVersion(), manifests::kFusionClusters.kind, {"", cluster.name}, cluster.uid},
       .type = TypeOf(note.warning),
       .reason = note.reason,
       .action = "Connect",
       .note = note.message});
}

void JobEvents::RecordOfRun(const kube::ObjectKey& job, const std::string& uid, const lifecycle::RunEvent& event) {
  recorder_.Record(
      {.regarding = JobReference(job, uid),
       .type = TypeOf(event.warning),
       .reason = event.reason,
       .action = "Train",
       .note = event.message,
       .source = kube::Event::Source{.controller = "fusionllm.io/broker", .id = absl::StrCat(event.number), .when = event.time}});
}

}  // namespace fusionllm::op::controller
