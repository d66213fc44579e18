// The Kubernetes objects of one job: pure functions from the job and where it runs to JSON. What they say is in
// docs/concepts/federation.md.
//
// In each cluster one owner ConfigMap owns all that is made there for the job, so that deleting it cleans up by the cluster's
// own garbage collector. The broker's pod has the scheduler beside it as a sidecar: a run plans with its own, on loopback.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/job/fusion_job.h"
#include "operator/manifests/hardware.h"
#include "operator/manifests/identity.h"

namespace fusionllm::op::manifests {

struct Images {
  std::string broker, scheduler, executor;
  std::string executor_cuda;  // of executors that ask for an NVIDIA device; empty: `executor`
  std::string pull_policy;    // empty: Kubernetes' default
};

// Ports of pods. The broker's own is spec.network.port.
inline constexpr int kExecutorPort = 7001;
inline constexpr int kSchedulerPort = 7002;  // on loopback, in the broker's pod
inline constexpr int kMetricsPort = 9090;
inline constexpr int kSchedulerMetricsPort = 9091;  // beside the broker, whose Pod it shares

// Where volumes are mounted.
inline constexpr char kDataFolder[] = "/data";
inline constexpr char kGraphFolder[] = "/graph";  // of spec.model.graph.volume
inline constexpr char kCheckpointFolder[] = "/checkpoints";
inline constexpr char kReplicaFolder[] = "/replica";  // of spec.checkpoint.replica.volume, in the broker's pod alone
inline constexpr char kScratchFolder[] = "/scratch";  // where an executor puts data that it fetches from an object store

// An owner in the same cluster and namespace.
struct Owner {
  std::string api_version, kind, name, uid;
};
Owner OwnerConfigMapReference(const JobIdentity& job, const std::string& owner_config_map_uid);

// ConfigMap.
nlohmann::json OwnerConfigMapObject(const JobIdentity& job, const std::string& cluster);

// The job as the broker in a pod reads it: canonical YAML, with paths as they are inside the pods, and without spares: they are pods of
// their own, which say so, or there was no room for them; no other executor is to stay idle in their place.
std::string JobDocument(const job::FusionJob& job);
nlohmann::json JobDocumentObject(const JobIdentity& identity, const job::FusionJob& job, const Owner& owner);

// `remote`: executors of other clusters must reach it, too.
nlohmann::json BrokerServiceObject(const JobIdentity& identity, const job::FusionJob& job, bool remote, const Owner& owner);

// Whether executors of different clusters reach each other by Services: the job says so, and they are in more than one.
bool ExecutorsHaveServices(const job::FusionJob& job, const std::vector<ExecutorSlot>& slots);
// Whether tensors of some executors meet at the broker: the job says so, or it has executors in several clusters and does not say how these
// reach each other, or one of these, among `egress_only`, can be dialled by no other.
bool ExecutorsNeedRelay(const job::FusionJob& job, const std::vector<ExecutorSlot>& slots, const std::set<std::string>& egress_only);
// Of one executor, whichever attempt its pod is of.
nlohmann::json ExecutorServiceObject(const JobIdentity& identity, const job::FusionJob& job, const ExecutorSlot& slot, const Owner& owner);

// A Secret of files.
nlohmann::json SecretObject(const JobIdentity& identity, const std::string& name, const std::map<std::string, std::string>& files,
                            const Owner& owner);

struct Attempt {
  int64_t number = 0;
  std::vector<ExecutorSlot> slots;  // all of the job, in all clusters
  std::string hub;                  // the hub's name as a cluster; empty: it lends no devices
};

// Whether pods of a cluster can mount spec.data.volume.
bool HoldsData(const job::Data& data, const std::string& cluster);
// Whether spec.model.graph.file lies in data.volume, for want of a volume of its own.
bool GraphIsAmongData(const job::Spec& spec);
// The executors that can feed the others, spares too, where some are in clusters without the data; empty: all have it.
std::vector<std::string> DataDevices(const job::FusionJob& job, const std::vector<ExecutorSlot>& slots);

// Errors: InvalidArgument naming the field of executors.template or broker.template.
absl::StatusOr<nlohmann::json> BrokerPod(const JobIdentity& identity, const job::FusionJob& job, const Attempt& attempt,
                                         const Images& images, const Owner& owner);
struct ExecutorAddresses {
  std::string broker;           // HOST:PORT at which pods of that cluster reach the broker
  std::string advertised = "";  // at which executors of other clusters reach this one; empty: at its pod's own address
  bool relay = false;           // it can meet others at the broker
  bool dialable = true;         // others can dial it; else they meet it at the relay
  bool away = false;            // in another cluster than the broker's
};
// Where executors of clusters other than the broker's keep their part of checkpoints, as they see it; empty: they send it to the broker.
std::string SiteCheckpoints(const job::FusionJob& job);
// `hardware`: of its cluster, by spec.placement.
absl::StatusOr<nlohmann::json> ExecutorPod(const JobIdentity& identity, const job::FusionJob& job, const ExecutorSlot& slot,
                                           int64_t attempt, const ExecutorAddresses& addresses, const Images& images, const Owner& owner,
                                           const DeviceKind& hardware = {});

}  // namespace fusionllm::op::manifests
