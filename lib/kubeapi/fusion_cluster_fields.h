// The table of FusionCluster's fields (lib/job/schema.h says who reads it).
#pragma once

#include "lib/kubeapi/fusion_cluster.h"
#include "lib/kubeapi/fusion_job_status_fields.h"

namespace fusionllm::kubeapi {

template <class V>
void Visit(V& v, KubeConfigSource& k) {
  v.Field("location", k.location, {.required = true, .max_length = 253}, "Name of the Secret, in the operator's own namespace.");
  v.Field("key", k.key, {.max_length = 253}, "Key in it whose value is the kubeconfig.");
}

template <class V>
void Visit(V& v, ClusterProfileRef& r) {
  v.Field("name", r.name, {.required = true, .max_length = 253}, "Name of the ClusterProfile.");
  v.Field("namespace", r.ns, {.max_length = 63}, "Its namespace. Omitted: the operator's own.");
}

template <class V>
void Visit(V& v, LocalSource& l) {}

template <class V>
void Visit(V& v, ClusterLink& l) {
  v.Field("to", l.to, {.required = true, .name = true}, "Name of the FusionCluster at the other end.");
  v.Field("bandwidth", l.bandwidth, {.required = true}, "Bytes a second that the link carries in this direction.");
  v.Field("latency", l.latency, {}, "Latency one way, from this cluster to the other.");
}

template <class V>
void Visit(V& v, ClusterNetwork& n) {
  v.Field("address", n.address, {.max_length = 253},
          "Host name or address at which other clusters reach its node ports. Omitted: a node's.");
  v.Field("egressOnly", n.egress_only, {}, "Nothing outside can dial in: its executors are reached through the relay.");
  v.Field("egress", n.egress, {}, "All that leaves the cluster together. Omitted: no limit is known.");
  v.Field("ingress", n.ingress, {}, "All that enters the cluster together. Omitted: no limit is known.");
  v.Field("links", n.links, {.max_items = job::kMaxClusters, .list_key = "to"},
          "What is known of the way to other clusters, for where a job is placed; its plans are made of what is measured.");
}

template <class V>
void Visit(V& v, FusionClusterSpec& s) {
  v.Field("kubeConfig", s.kube_config, {},
          "How to reach it: a kubeconfig in a Secret. Exactly one of kubeConfig, clusterProfileRef and local.");
  v.Field("clusterProfileRef", s.cluster_profile_ref, {},
          "How to reach it: a ClusterProfile (multicluster.x-k8s.io) and one of the access providers that the operator is given.");
  v.Field("local", s.local, {}, "It is the cluster that the operator runs in: `local: {}`.");
  v.Field("region", s.region, {.max_length = kMaxShortText}, "Region that the cluster lies in, for people and selectors.");
  v.Field("zone", s.zone, {.max_length = kMaxShortText}, "Zone that the cluster lies in, for people and selectors.");
  v.Field("provider", s.provider, {.max_length = kMaxShortText}, "Who runs the cluster, such as a cloud's name, for people and selectors.");
  v.Field("maxConcurrentRequests", s.max_concurrent_requests, {.min = 1, .max = 1000}, "Requests under way to its API server at once.");
  v.Field("qps", s.qps, {.min = 1, .max = 10000}, "Requests a second to its API server, in the long run.");
  v.Field("burst", s.burst, {.min = 1, .max = 10000}, "Requests at once when there were none before; at least qps.");
  v.Field("workerLostTimeoutSeconds", s.worker_lost_timeout_seconds, {.min = 1, .max = 86400},
          "How long it may be out of reach until its executors count as lost.");
  v.Field("onDemand", s.on_demand, {},
          "Nodes are added when Pods wait for them, by a cluster autoscaler: executors are placed there though no node has room now.");
  v.Field("network", s.network, {}, "Its network, as other clusters see it.");
}

template <class V>
void Visit(V& v, DeviceSummary& d) {
  v.Field("product", d.product, {.required = true, .max_length = kMaxShortText}, "Name of the resource by which Pods ask for the device.");
  v.Field("allocatable", d.allocatable, {.min = 0, .max = kMaxCount}, "Devices that Pods may use.");
  v.Field("allocated", d.allocated, {.min = 0, .max = kMaxCount}, "Devices that Pods use.");
}

template <class V>
void Visit(V& v, ResourceSummary& r) {
  v.Field("nodes", r.nodes, {.min = 0, .max = kMaxCount}, "How many nodes the cluster has.");
  v.Field("readyNodes", r.ready_nodes, {.min = 0, .max = kMaxCount}, "Nodes that are ready and take Pods.");
  v.Field("allocatableMillicpus", r.allocatable_millicpus, {.min = 0}, "Thousandths of processor cores that Pods may use.");
  v.Field("allocatedMillicpus", r.allocated_millicpus, {.min = 0}, "CPUs that Pods have asked for.");
  v.Field("allocatableMemory", r.allocatable_memory, {}, "Memory that Pods may use.");
  v.Field("allocatedMemory", r.allocated_memory, {}, "What Pods asked for of it.");
  v.Field("devices", r.devices, {.max_items = 64, .list_key = "product"}, "Accelerators that its nodes have, by kind.");
}

template <class V>
void Visit(V& v, FusionClusterStatus& s) {
  v.Field("observedGeneration", s.observed_generation, {.min = 0}, "Generation of the spec that this status speaks of.");
  v.Field("conditions", s.conditions, {.max_items = kMaxConditions, .list_key = "type"}, "What is so, and since when.");
  v.Field("kubernetesVersion", s.kubernetes_version, {.max_length = kMaxShortText}, "Version of its API server.");
  v.Field("clusterUID", s.cluster_uid, {.max_length = kMaxShortText},
          "UID of its namespace kube-system: shows whether a cluster is registered twice, or was replaced under the same name.");
  v.Field("apiEnablements", s.api_enablements, {.max_items = 64, .max_length = kMaxShortText},
          "Of the APIs that jobs may be queued or grouped with, those that it serves, as GROUP/VERSION. The operator needs none of them.");
  v.Field("resourceSummary", s.resource_summary, {}, "What its nodes have.");
  v.Field("executors", s.executors, {.min = 0, .max = kMaxCount}, "Executors that run there, of all jobs.");
}

template <class V>
void Visit(V& v, FusionCluster& c) {
  v.Constant("apiVersion", job::kApiVersion);
  v.Constant("kind", "FusionCluster");
  v.Field("metadata", c.metadata, {.required = true}, "Name and labels of the cluster.");
  v.Field("spec", c.spec, {.required = true}, "How to reach the cluster and what it may be asked for.");
  v.Field("status", c.status, {}, "What the operator knows of the cluster.");
}

}  // namespace fusionllm::kubeapi
