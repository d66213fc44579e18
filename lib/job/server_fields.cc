#include "lib/job/server_fields.h"

#include <algorithm>
#include <span>

namespace fusionllm::job {
namespace {

constexpr absl::string_view kOfObject[] = {"status"};
// ObjectMeta of Kubernetes without what a file may say: name, namespace, labels and annotations. generateName is a request, which no
// program here grants.
constexpr absl::string_view kOfMetadata[] = {
    "creationTimestamp", "deletionGracePeriodSeconds",
    "deletionTimestamp", "finalizers",
    "generation",        "managedFields",
    "ownerReferences",   "resourceVersion",
    "selfLink",          "uid",
};

void Drop(std::span<const absl::string_view> names, Node& map) {
  size_t kept = 0;
  for (size_t i = 0; i < map.keys.size(); ++i) {
    if (std::find(names.begin(), names.end(), map.keys[i]) != names.end()) continue;
    if (kept != i) {
      map.keys[kept] = std::move(map.keys[i]);
      map.items[kept] = std::move(map.items[i]);
    }
    ++kept;
  }
  map.keys.resize(kept);
  map.items.resize(kept);
}

}  // namespace

void DropServerFields(Node& root) {
  if (root.kind != Node::Kind::kMap) return;
  Drop(kOfObject, root);
  for (size_t i = 0; i < root.keys.size(); ++i) {
    if (root.keys[i] == "metadata" && root.items[i].kind == Node::Kind::kMap) Drop(kOfMetadata, root.items[i]);
  }
}

}  // namespace fusionllm::job
