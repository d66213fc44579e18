// What the nodes of one cluster have, and what of it is taken; and how many pods with the same requirements find room there. Pure functions
// of a snapshot.
//
// A model of the cluster's own scheduler that is right for pods that are alike: resources, readiness, taints, node selectors and required
// node affinity. Affinity between pods, spreading and priorities are not looked at: a pod that they keep out waits, and says so itself.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "lib/kube/api/resource_list.h"
#include "lib/kube/watch/node.h"
#include "operator/cache/job_pod.h"
#include "operator/cache/pod_requirements.h"
#include "operator/manifests/hardware.h"

namespace fusionllm::op::cache {

struct NodeCapacity {
  std::string name;
  std::map<std::string, std::string> labels;
  std::vector<kube::Taint> taints;
  bool ready = false, unschedulable = false;
  kube::ResourceList allocatable;
  kube::ResourceList taken;  // by all pods there
};

// What a pod requests; many pods have the same.
using SharedResourceList = std::shared_ptr<const kube::ResourceList>;

// A pod of a job that has a node.
struct PlacedPod {
  JobRefPtr job;
  size_t node = 0;  // index in ClusterCapacity::nodes
  SharedResourceList requests;
};

// Pods that wait for a node: they will take room, it is not known where.
struct WaitingPod {
  JobRefPtr job;  // null: of none
  SharedResourceList requests;
};

struct ClusterCapacity {
  std::vector<NodeCapacity> nodes;  // by name
  std::vector<PlacedPod> of_jobs;
  std::vector<WaitingPod> waiting;
  absl::flat_hash_map<std::string, int64_t> pods_of_job;  // by job uid, waiting or not
  int64_t executors = 0;                                  // that have a node
};

struct FreeCapacity {
  int64_t pods = 0;                                 // with those requirements
  int64_t nodes = 0;                                // that have room for one or more
  std::vector<std::pair<size_t, int64_t>> by_node;  // index in ClusterCapacity::nodes of each of these, and for how many
  std::string shortage;  // why not more, over all nodes: "2 nodes: 1 not ready (n1), 1 with too little cpu (most free: 0.5 cpu)"
};

// `job_uid`: its own pods do not count, they end before others come in their place. `reserved`: pods of other jobs that are placed here and
// not there yet, by what each requests.
FreeCapacity FreeCapacityFor(const PodRequirements& requirements, const ClusterCapacity& cluster, const std::string& job_uid,
                             const std::vector<SharedResourceList>& reserved);

// Nodes that take no pods whatever these ask for, the first few by name, for a message: " (not ready: c; cordoned: a, b)"; empty: there are
// none. One that is both counts as not ready.
std::string UnavailableNodes(const ClusterCapacity& cluster);

// `device`: spec.placement.device, neither empty nor "any". A value of a node's label names it when it is the same but for case and
// punctuation, or has its words: "l4" and "nvidia-l4" name "NVIDIA-L4". No values: no node has it, with `min_memory_bytes` as far as
// labels say how much its devices have.
manifests::DeviceKind FindDevice(const std::string& device, int64_t min_memory_bytes, const ClusterCapacity& cluster);
// What a node with accelerators calls one of their kind: what its label says, else the name of the resource.
std::string ProductOf(const NodeCapacity& node, const std::string& resource);
// What there is to name, for messages.
std::vector<std::string> DeviceNames(const ClusterCapacity& cluster);

}  // namespace fusionllm::op::cache
