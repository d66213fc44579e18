#include "operator/controller/job_clusters.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>

#include "operator/controller/endpoints.h"

namespace fusionllm::op::controller {

bool JobClusters::Named(const std::string& cluster) const {
  const auto& named = view_.status.cluster_statuses;
  return std::any_of(named.begin(), named.end(), [&](const auto& of) { return of.name == cluster; });
}

std::vector<lifecycle::ClusterView> JobClusters::Look() const {
  std::vector<lifecycle::ClusterView> clusters;
  lifecycle::ClusterView hub = LookInto(hub_);
  if (!local_.empty()) hub.name = local_;
  for (lifecycle::PodView& pod : hub.pods) pod.cluster = hub.name;
  clusters.push_back(std::move(hub));
  for (const std::shared_ptr<cache::Member>& member : members_.Remote()) clusters.push_back(LookInto(*member));
  AddUnknown(clusters);
  return clusters;
}

lifecycle::ClusterView JobClusters::LookInto(const cache::Member& member) const {
  // Asked first: one that is listed and reached just after would be one that was reached, and is away.
  const bool listed = member.listed();
  lifecycle::ClusterView cluster{
      .name = member.name(), .reachable = member.reachable(), .lost = member.lost(), .listed = listed, .used = Named(member.name())};
  if (const auto owner_config_map = member.OwnerConfigMapOf(view_.identity)) {
    cluster.owner_config_map = true;
    cluster.owner_config_map_terminating = owner_config_map->terminating;
    cluster.owner_config_map_preserved = owner_config_map->preserved;
    cluster.waiting = owner_config_map->waiting;
  }
  cluster.pods = member.PodsOf(view_.identity);
  // Brokers are on the hub alone: one who may make pods in a member is not to say how a job ends.
  if (&member != &hub_) std::erase_if(cluster.pods, [](const lifecycle::PodView& pod) { return pod.role != manifests::kExecutorRole; });
  return cluster;
}

// Their FusionCluster is gone, or cannot be connected. The executors there may well be at work.
void JobClusters::AddUnknown(std::vector<lifecycle::ClusterView>& clusters) const {
  const size_t known = clusters.size();
  const auto registered = [&](const std::string& cluster) {
    bool found = false;
    members_.ForEachCluster([&](const cache::ClusterFacts& facts) { found = found || facts.name == cluster; });
    return found;
  };
  for (const kubeapi::ClusterStatus& named : view_.status.cluster_statuses) {
    const bool is_known = std::any_of(clusters.begin(), clusters.begin() + static_cast<ptrdiff_t>(known),
                                      [&](const lifecycle::ClusterView& cluster) { return cluster.name == named.name; });
    if (is_known || named.local) continue;
    clusters.push_back({.name = named.name,
                        .reachable = false,
                        .lost = members_.Lost(named.name),
                        .listed = false,
                        .registered = registered(named.name),
                        .used = true});
  }
}

void JobClusters::FindEndpoints(lifecycle::Observation& seen) const {
  const auto center = hub_.OwnerConfigMapOf(view_.identity);
  // Of a job that is over the addresses are gone with its Services: what was reported last stays.
  if (!center.has_value() || !seen.placed || seen.persisted.complete || seen.persisted.failed) return;
  seen.broker_endpoint = center->remote_broker_address.empty() ? center->broker_address : center->remote_broker_address;
  const EndpointInputs ways{.job = &seen.job,
                            .slots = &seen.slots,
                            .attempt = seen.persisted.attempt,
                            .egress_only = EgressOnly(),
                            .relay = center->remote_broker_address};
  lifecycle::ClusterView& hub = seen.clusters.front();
  if (!local_.empty()) hub.endpoint = ExecutorEndpoint(ways, hub, center->executor_addresses);
  for (const std::shared_ptr<cache::Member>& member : members_.Remote()) {
    const auto at = std::find_if(seen.clusters.begin(), seen.clusters.end(), [&](const auto& c) { return c.name == member->name(); });
    const auto owner_config_map = member->OwnerConfigMapOf(view_.identity);
    if (at != seen.clusters.end() && owner_config_map.has_value())
      at->endpoint = ExecutorEndpoint(ways, *at, owner_config_map->executor_addresses);
  }
}

std::set<std::string> JobClusters::EgressOnly() const {
  std::set<std::string> names;
  members_.ForEachCluster([&](const cache::ClusterFacts& facts) {
    if (facts.egress_only) names.insert(facts.local ? local_ : facts.name);
  });
  return names;
}

}  // namespace fusionllm::op::controller
