#include "operator/fleet/fleet_metrics.h"

#include <map>
#include <utility>

#include "operator/lifecycle/decide.h"

namespace fusionllm::op {
namespace {

constexpr JobState kStates[] = {JobState::kPending,   JobState::kStarting, JobState::kRunning, JobState::kRestarting, JobState::kSuspending,
                                JobState::kSuspended, JobState::kComplete, JobState::kFailed,  JobState::kDeleting};

// "namespace" and "job" are what Prometheus calls the place of the operator itself.
const std::vector<std::string> kJobLabels = {"job_namespace", "job_name"};

std::vector<std::string> With(std::vector<std::string> labels, const char* more) {
  labels.emplace_back(more);
  return labels;
}

}  // namespace

FleetMetrics::FleetMetrics(metrics::Registry& registry, Jobs jobs, Clusters clusters)
    : read_jobs_(std::move(jobs)),
      read_clusters_(std::move(clusters)),
      jobs_(registry.AddGauge(
          {"jobs",
           "FusionJobs by state: Pending, Starting, Running, Restarting, Suspending, Suspended, Complete, Failed, Deleting.",
           {"state"}})),
      info_(registry.AddGauge({"job_info", "Always 1, for each FusionJob; state is that of its status.", With(kJobLabels, "state")})),
      restarts_(registry.AddGauge({"job_restarts", "Times that the FusionJob as a whole was started again.", kJobLabels})),
      executors_(registry.AddGauge(
          {"job_executors",
           "Executors of the FusionJob while it is not over: wanted (where its spec says how many), active (there is a Pod), ready.",
           With(kJobLabels, "kind")})),
      connected_(
          registry.AddGauge({"cluster_connected",
                             "1: the watches on the FusionCluster are alive; 0: it cannot be reached or its credentials are refused.",
                             {"cluster"}})) {
  registry.OnCollect([this] { Refresh(); });
}

void FleetMetrics::Refresh() {
  std::map<std::string, int> counts;
  for (const JobState state : kStates) counts[Name(state)] = 0;  // a state without jobs is a fact, too
  for (const metrics::Gauge& gauge : {jobs_, info_, restarts_, executors_, connected_}) gauge.Clear();
  for (const std::shared_ptr<const JobView>& job : read_jobs_()) {
    if (!job->managed_by.empty()) continue;  // somebody else's
    const std::string state = job->status.state.empty() ? Name(JobState::kPending) : job->status.state;
    ++counts[state];
    info_.Set(1, {job->identity.ns, job->identity.name, state});
    restarts_.Set(static_cast<double>(job->status.restarts), {job->identity.ns, job->identity.name});
    if (job->status.completion_time.has_value()) continue;
    const auto executors = [&](const char* kind, int64_t count) {
      executors_.Set(static_cast<double>(count), {job->identity.ns, job->identity.name, kind});
    };
    if (job->job.ok() && job->job->spec.executors.replicas.has_value()) executors("wanted", *job->job->spec.executors.replicas);
    executors("active", job->status.replicas);
    executors("ready", job->status.ready_replicas);
  }
  for (const auto& [state, count] : counts) jobs_.Set(count, {state});
  for (const auto& [name, connected] : read_clusters_()) connected_.Set(connected ? 1 : 0, {name});
}

}  // namespace fusionllm::op
