#include "operator/federation/connect_metrics.h"

namespace fusionllm::op::federation {

ConnectMetrics::ConnectMetrics(metrics::Registry& registry)
    : attempts_(
          registry.AddCounter({.name = "cluster_connect_attempts_total",
                               .help = "Times that a FusionCluster which was not connected was asked who it is, or that its credentials "
                                       "were refused before it could be.",
                               .labels = {"cluster"}})) {
  registry.AddCallbackGauge({.name = "cluster_next_attempt_timestamp_seconds",
                             .help = "When a FusionCluster that is not connected is tried next; in the past for long: an attempt hangs.",
                             .labels = {"cluster"}},
                            [this](const metrics::Registry::Emit& emit) {
                              const base::MutexLock lock(mutex_);
                              for (const auto& [name, known] : clusters_) {
                                if (known.connected || known.next == absl::InfinitePast()) continue;
                                emit(absl::ToDoubleSeconds(known.next - absl::UnixEpoch()), {name});
                              }
                            });
}

void ConnectMetrics::Register(const std::string& cluster) {
  const base::MutexLock lock(mutex_);
  if (!clusters_.try_emplace(cluster).second) return;
  attempts_.Add(0, {cluster});  // counted from zero: the first is a rise that can be seen
}

void ConnectMetrics::Forget(const std::string& cluster) {
  const base::MutexLock lock(mutex_);
  clusters_.erase(cluster);
  attempts_.Remove({cluster});
}

void ConnectMetrics::Tried(const std::string& cluster) {
  const base::MutexLock lock(mutex_);
  if (clusters_.contains(cluster)) attempts_.Add(1, {cluster});
}

void ConnectMetrics::NextAt(const std::string& cluster, absl::Time next) {
  const base::MutexLock lock(mutex_);
  if (const auto at = clusters_.find(cluster); at != clusters_.end()) at->second.next = next;
}

void ConnectMetrics::Found(const std::string& cluster, bool connected) {
  const base::MutexLock lock(mutex_);
  if (const auto at = clusters_.find(cluster); at != clusters_.end()) at->second.connected = connected;
}

}  // namespace fusionllm::op::federation
