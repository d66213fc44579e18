// A FusionCluster as the hub's cache keeps it.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/kube/watch/object.h"
#include "lib/kubeapi/fusion_cluster.h"
#include "operator/cache/member.h"

namespace fusionllm::op::federation {

struct ClusterObject : kube::Object {
  kubeapi::FusionCluster cluster;
  std::string created_at;  // as the server wrote it, which sorts by age
  int64_t generation = 0;
  cache::ClusterFacts facts;  // of `cluster`: who looks at a job asks for them many times

  // Of two that are the same cluster the older one counts.
  bool IsOlderThan(const ClusterObject& other) const;
};

// Errors: those of a decoder.
absl::StatusOr<kube::ObjectPtr> DecodeCluster(absl::string_view text);
inline const ClusterObject& AsCluster(const kube::ObjectPtr& object) { return static_cast<const ClusterObject&>(*object); }

}  // namespace fusionllm::op::federation
