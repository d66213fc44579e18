// What a cache keeps of a Pod of which only its share of a node matters: of clusters whose pods are mostly somebody else's.
#pragma once

#include <memory>
#include <string>

#include "lib/kube/api/resource_list.h"
#include "lib/kube/watch/object.h"

namespace fusionllm::kube {

struct PodResources : Object {
  size_t Bytes() const override { return Object::Bytes() + node.size() + (requests == nullptr ? 0 : BytesOf(*requests)); }
  std::string node;  // empty: no scheduler has found it a place yet
  std::shared_ptr<const ResourceList>
      requests;        // as the scheduler counts it, "pods" (1) included; never null, and one for all that are equal
  bool ended = false;  // Succeeded or Failed: its share is free again
};

// Fills in `pod`, which may be of a derived class. Its errors are those of a decoder (object.h).
absl::Status ReadPodResources(absl::string_view json, PodResources& pod);

// What the scheduler reserves for a pod, by its JSON, which need not be of a server: its containers and sidecars together, or the most that
// an init container needs beside the sidecars before it, whichever is more; then its overhead. A limit without a request is one.
absl::StatusOr<ResourceList> RequestsOfPod(absl::string_view json);

}  // namespace fusionllm::kube
