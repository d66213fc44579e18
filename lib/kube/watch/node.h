// What a cache keeps of a Node: what its pods may use, and who is let in.
#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "lib/kube/api/resource_list.h"
#include "lib/kube/watch/object.h"

namespace fusionllm::kube {

struct Taint {
  std::string key, value, effect;  // NoSchedule, PreferNoSchedule, NoExecute
  bool operator==(const Taint&) const = default;
};

struct Node : Object {
  size_t Bytes() const override;
  bool ready = false;
  absl::Time away_since = absl::InfiniteFuture();  // not ready since then, as far as it says
  bool unschedulable = false;                      // cordoned
  std::vector<Taint> taints;
  ResourceList allocatable;
  std::string kubelet_version;
};

// An amount that cannot be read counts as none.
absl::StatusOr<ObjectPtr> DecodeNode(absl::string_view json);

}  // namespace fusionllm::kube
