// Which objects a request is about, and the path of it on the API server.
#pragma once

#include <compare>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace fusionllm::kube {

// A kind of object as the server serves it: group, version, resource, as client-go calls it, with what else a path and a body need.
struct Resource {
  std::string group;  // empty: the core group
  std::string version;
  std::string plural;  // "pods"
  std::string kind;    // "Pod"
  bool namespaced = true;

  // "v1", "apps/v1": apiVersion of its objects.
  std::string ApiVersion() const;
  // "pods", "jobs.batch": for messages and labels.
  std::string Name() const;
  auto operator<=>(const Resource&) const = default;
};

// An object of a kind. `ns` is empty for objects of the whole cluster.
struct ObjectKey {
  std::string ns;
  std::string name;

  std::string ToString() const;  // "ns/name" or "name"
  auto operator<=>(const ObjectKey&) const = default;
};

template <class H>
H AbslHashValue(H state, const ObjectKey& key) {
  return H::combine(std::move(state), key.ns, key.name);
}

// "/api/v1/namespaces/ns/pods", "/apis/apps/v1/deployments" for all namespaces when `ns` is empty. Segments are percent-encoded.
std::string CollectionPath(const Resource& resource, absl::string_view ns);
// With the object's name and, unless empty, a subresource ("status").
std::string ObjectPath(const Resource& resource, const ObjectKey& key, absl::string_view subresource = {});

// Everything but letters, digits, '-', '.', '_' and '~' as %XX: selectors hold '=', ',' and '!'.
std::string PercentEncode(absl::string_view text);
// "a=1&b=x%2Cy" of names and values; those with an empty value are left out.
std::string QueryString(const std::vector<std::pair<std::string, std::string>>& parameters);

}  // namespace fusionllm::kube
