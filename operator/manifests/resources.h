// The kinds of objects that the operator works with.
#pragma once

#include "lib/kube/api/resource.h"

namespace fusionllm::op::manifests {

inline const kube::Resource kPods{"", "v1", "pods", "Pod", true};
inline const kube::Resource kConfigMaps{"", "v1", "configmaps", "ConfigMap", true};
inline const kube::Resource kSecrets{"", "v1", "secrets", "Secret", true};
inline const kube::Resource kClaims{"", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", true};
inline const kube::Resource kEvents{"", "v1", "events", "Event", true};
inline const kube::Resource kServices{"", "v1", "services", "Service", true};
inline const kube::Resource kNamespaces{"", "v1", "namespaces", "Namespace", false};
inline const kube::Resource kNodes{"", "v1", "nodes", "Node", false};
inline const kube::Resource kFusionJobs{"fusionllm.io", "v1alpha1", "fusionjobs", "FusionJob", true};
inline const kube::Resource kFusionClusters{"fusionllm.io", "v1alpha1", "fusionclusters", "FusionCluster", false};
// Of SIG-Multicluster's cluster-inventory-api.
inline const kube::Resource kClusterProfiles{"multicluster.x-k8s.io", "v1alpha1", "clusterprofiles", "ClusterProfile", true};

// Who writes: the same for ever, or fields of an earlier writer would stay behind.
inline constexpr char kFieldManager[] = "fusion-operator";

}  // namespace fusionllm::op::manifests
