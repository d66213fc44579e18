// What a work queue holds: the name of an object in a cluster, never the object itself, which may have changed by the time its turn comes.
#pragma once

#include <compare>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace fusionllm::kube {

struct WorkKey {
  std::string cluster;  // empty: the hub
  std::string ns;
  std::string name;

  // "cluster:ns/name", for messages.
  std::string ToString() const { return absl::StrCat(cluster, cluster.empty() ? "" : ":", ns, ns.empty() ? "" : "/", name); }
  auto operator<=>(const WorkKey&) const = default;
};

template <class H>
H AbslHashValue(H state, const WorkKey& key) {
  return H::combine(std::move(state), key.cluster, key.ns, key.name);
}

}  // namespace fusionllm::kube
