// FusionCluster: a member cluster that jobs may use, and what is known of it; plain values in the order of the object.
//
// Described for readers in docs/reference/kubernetes-reference.md, which is generated from fusion_cluster_fields.h. Read and written with
// objects.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "lib/job/fusion_job.h"
#include "lib/job/units.h"
#include "lib/kubeapi/condition.h"

namespace fusionllm::kubeapi {

// Conditions of a FusionCluster: kReady of fusion_job_status.h is the sum of these.
inline constexpr absl::string_view kConnected = "Connected";
inline constexpr absl::string_view kCredentialsValid = "CredentialsValid";
inline constexpr absl::string_view kControlPlaneHealthy = "ControlPlaneHealthy";
inline constexpr absl::string_view kClockSynced = "ClockSynced";
inline constexpr absl::string_view kConflict = "Conflict";
inline constexpr absl::string_view kTokenRenewed = "TokenRenewed";

// A key of a Secret in the operator's own namespace.
struct KubeConfigSource {
  std::string location;  // name of the Secret
  std::string key = "kubeconfig";
  bool operator==(const KubeConfigSource&) const = default;
};

// A ClusterProfile (multicluster.x-k8s.io/v1alpha1) on the hub.
struct ClusterProfileRef {
  std::string name;
  std::optional<std::string> ns;  // omitted: the operator's own
  bool operator==(const ClusterProfileRef&) const = default;
};

// The cluster that the operator runs in.
struct LocalSource {
  bool operator==(const LocalSource&) const = default;
};

struct ClusterLink {
  std::string to;
  job::Bandwidth bandwidth;
  job::Duration latency;
  bool operator==(const ClusterLink&) const = default;
};

struct ClusterNetwork {
  std::optional<std::string> address;  // where its node ports and load balancers are reached
  bool egress_only = false;
  std::optional<job::Bandwidth> egress, ingress;
  std::vector<ClusterLink> links;
  bool operator==(const ClusterNetwork&) const = default;
};

struct FusionClusterSpec {
  // Exactly one of these three.
  std::optional<KubeConfigSource> kube_config;
  std::optional<ClusterProfileRef> cluster_profile_ref;
  std::optional<LocalSource> local;
  std::optional<std::string> region, zone, provider;
  int64_t max_concurrent_requests = 32;
  int64_t qps = 300;
  int64_t burst = 500;
  int64_t worker_lost_timeout_seconds = 300;
  bool on_demand = false;
  ClusterNetwork network;
  bool operator==(const FusionClusterSpec&) const = default;
};

struct DeviceSummary {
  std::string product;
  int64_t allocatable = 0, allocated = 0;
  bool operator==(const DeviceSummary&) const = default;
};

struct ResourceSummary {
  int64_t nodes = 0, ready_nodes = 0;
  int64_t allocatable_millicpus = 0, allocated_millicpus = 0;
  std::optional<job::ByteSize> allocatable_memory, allocated_memory;
  std::vector<DeviceSummary> devices;
  bool operator==(const ResourceSummary&) const = default;
};

struct FusionClusterStatus {
  int64_t observed_generation = 0;
  std::vector<Condition> conditions;
  std::optional<std::string> kubernetes_version;
  std::optional<std::string> cluster_uid;
  std::vector<std::string> api_enablements;
  std::optional<ResourceSummary> resource_summary;
  int64_t executors = 0;
  bool operator==(const FusionClusterStatus&) const = default;
};

struct FusionCluster {
  job::Metadata metadata;
  FusionClusterSpec spec;
  FusionClusterStatus status;
  bool operator==(const FusionCluster&) const = default;
};

}  // namespace fusionllm::kubeapi
