#include "operator/controller/job_metrics.h"

#include <vector>

#include "operator/manifests/resources.h"

namespace fusionllm::op::controller {
namespace {

// Times are known to the second; images that are pulled and nodes that are made take minutes.
std::vector<double> Seconds() { return {1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600}; }

}  // namespace

JobMetrics::JobMetrics(metrics::Registry& registry)
    : start_(registry.AddHistogram(
          {"job_start_latency_seconds", "From a FusionJob's creation, or its resumption, until all of its executors were ready."},
          Seconds())),
      restart_(
          registry.AddHistogram({"job_restart_latency_seconds",
                                 "From the failure or loss that ended an attempt until a later one had made a step, as its broker reports "
                                 "every five seconds."},
                                Seconds())),
      restarts_(registry.AddCounter({"job_restarts_total",
                                     "Attempts that were followed by another one, by why: BrokerFailed, BrokerLost, ExecutorFailed, "
                                     "ClusterLost, Resized (another number of executors, which is no failure).",
                                     {"reason"}})),
      status_writes_(registry.AddCounter({"status_writes_total", "Statuses written to the hub.", {"resource"}})) {
  // Counted from zero: the first is a rise that can be seen.
  for (const metrics::Histogram& latency : {start_, restart_}) latency.InitializeToZero();
  for (const lifecycle::RestartCause cause : lifecycle::kRestartCauses) restarts_.Add(0, {lifecycle::Name(cause)});
  for (const kube::Resource& resource : {manifests::kFusionJobs, manifests::kFusionClusters}) status_writes_.Add(0, {resource.plural});
}

void JobMetrics::Started(absl::Duration took) const { start_.Observe(absl::ToDoubleSeconds(took)); }
void JobMetrics::Restarted(lifecycle::RestartCause cause) const { restarts_.Add(1, {lifecycle::Name(cause)}); }
void JobMetrics::ProgressResumed(absl::Duration took) const { restart_.Observe(absl::ToDoubleSeconds(took)); }
void JobMetrics::WroteStatus(const std::string& resource) const { status_writes_.Add(1, {resource}); }

}  // namespace fusionllm::op::controller
