#include "operator/manager/fleet_metrics.h"

#include <map>
#include <utility>

#include "operator/lifecycle/decide.h"

namespace fusionllm::op::manager {
namespace {

constexpr lifecycle::JobState kStates[] = {
    lifecycle::JobState::kPending,    lifecycle::JobState::kQueued,     lifecycle::JobState::kStarting,  lifecycle::JobState::kRunning,
    lifecycle::JobState::kRestarting, lifecycle::JobState::kSuspending, lifecycle::JobState::kSuspended, lifecycle::JobState::kComplete,
    lifecycle::JobState::kFailed,     lifecycle::JobState::kDeleting};

// "namespace" and "job" are what Prometheus calls the place of the operator itself.
const std::vector<std::string> kJobLabels = {"job_namespace", "job_name"};

std::vector<std::string> With(std::vector<std::string> labels, const char* more) {
  labels.emplace_back(more);
  return labels;
}

}  // namespace

template <class Use>
void FleetMetrics::ForEachJob(const Use& use) const {
  for (const std::shared_ptr<const cache::JobView>& job : read_jobs_()) {
    if (!job->ours) continue;
    use(*job, job->status.state.empty() ? std::string(lifecycle::Name(lifecycle::JobState::kPending)) : job->status.state);
  }
}

FleetMetrics::FleetMetrics(metrics::Registry& registry, Jobs jobs, Clusters clusters)
    : read_jobs_(std::move(jobs)), read_clusters_(std::move(clusters)) {
  using Emit = metrics::Registry::Emit;
  registry.AddCallbackGauge(
      {"jobs",
       "FusionJobs by state: Pending, Queued, Starting, Running, Restarting, Suspending, Suspended, Complete, Failed, Deleting.",
       {"state"}},
      [this](const Emit& emit) {
        std::map<std::string, int> counts;
        for (const lifecycle::JobState state : kStates) counts[lifecycle::Name(state)] = 0;  // a state without jobs is a fact, too
        ForEachJob([&](const cache::JobView&, const std::string& state) { ++counts[state]; });
        for (const auto& [state, count] : counts) emit(count, {state});
      });
  registry.AddCallbackGauge(
      {"job_info", "Always 1, for each FusionJob; state is that of its status.", With(kJobLabels, "state")}, [this](const Emit& emit) {
        ForEachJob([&](const cache::JobView& job, const std::string& state) { emit(1, {job.identity.ns, job.identity.name, state}); });
      });
  registry.AddCallbackGauge({"job_restarts", "Times that the FusionJob as a whole was started again.", kJobLabels},
                            [this](const Emit& emit) {
                              ForEachJob([&](const cache::JobView& job, const std::string&) {
                                emit(static_cast<double>(job.status.restarts), {job.identity.ns, job.identity.name});
                              });
                            });
  registry.AddCallbackGauge(
      {"job_executors",
       "Executors of the FusionJob while it is not over: wanted (where its spec says how many), active (there is a Pod), ready.",
       With(kJobLabels, "kind")},
      [this](const Emit& emit) {
        ForEachJob([&](const cache::JobView& job, const std::string&) {
          if (job.status.completion_time.has_value()) return;
          const auto executors = [&](const char* kind, int64_t count) {
            emit(static_cast<double>(count), {job.identity.ns, job.identity.name, kind});
          };
          if (job.job.ok() && job.job->spec.executors.replicas.has_value()) executors("wanted", *job.job->spec.executors.replicas);
          executors("active", job.status.replicas);
          executors("ready", job.status.ready_replicas);
        });
      });
  registry.AddCallbackGauge({"cluster_connected",
                             "1: the watches on the FusionCluster are alive; 0: it cannot be reached or its credentials are refused.",
                             {"cluster"}},
                            [this](const Emit& emit) {
                              for (const auto& [name, connection_state] : read_clusters_())
                                emit(connection_state.connected ? 1 : 0, {name});
                            });
  registry.AddCallbackGauge(
      {"cluster_disconnected_seconds", "Since the FusionCluster's status says that it cannot be worked with; 0: it can.", {"cluster"}},
      [this](const Emit& emit) {
        for (const auto& [name, connection_state] : read_clusters_())
          emit(absl::ToDoubleSeconds(connection_state.disconnected_for), {name});
      });
}

}  // namespace fusionllm::op::manager
