// What a cache keeps of objects: small structs made from their JSON, never the JSON library's own tree, which takes many times the memory.
//
// Objects are immutable once made and shared; to change one, write to the server. Who caches a kind that is not below
// derives from Object and passes a decoder of its own. Decoders are thread-safe, take the JSON of one object and answer InvalidArgument
// when it is none. metadata.managedFields, often the largest part, are never kept, nor is of the rest what no cache is asked for.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lib/kube/api/resource.h"

namespace fusionllm::kube {

using Annotations = std::vector<std::pair<std::string, std::string>>;
// Empty where there is none of that name.
absl::string_view AnnotationOf(const Annotations& annotations, absl::string_view name);

struct ObjectMeta {
  std::string ns, name, uid;
  std::string resource_version;
  std::string deletion_timestamp;                // empty: it is not being deleted
  absl::Time created_at = absl::InfinitePast();  // by the server's clock; so where it is not said
  std::vector<std::pair<std::string, std::string>> labels;

  ObjectKey Key() const { return {ns, name}; }
  // Empty where there is no such label.
  absl::string_view Label(absl::string_view name) const;
  // With the memory that they take, which to assign an empty list leaves.
  void DropLabels() { decltype(labels)().swap(labels); }
};

struct Object {
  // What a cache spends on an object besides its texts: itself, its places in tables and indexes.
  static constexpr size_t kOwnBytes = 512;

  virtual ~Object() = default;
  // About how much memory a cache needs for it, no less where texts are long; what is shared with others is counted in each.
  virtual size_t Bytes() const;
  ObjectMeta meta;
};
using ObjectPtr = std::shared_ptr<const Object>;
using DecodeObject = std::function<absl::StatusOr<ObjectPtr>(absl::string_view json)>;

// The metadata alone. Takes any kind, and PartialObjectMetadata.
absl::StatusOr<ObjectPtr> DecodeMetadata(absl::string_view json);
// As that, with those annotations that are texts. No object keeps them all.
absl::Status ReadAnnotated(absl::string_view json, ObjectMeta& meta, Annotations& annotations);

// All of it as compact as the server sent it, managedFields emptied.
struct JsonObject : Object {
  size_t Bytes() const override { return Object::Bytes() + json.size(); }
  std::string json;
};
absl::StatusOr<ObjectPtr> DecodeJson(absl::string_view json);

struct ContainerState {
  enum class Kind { kUnknown, kWaiting, kRunning, kTerminated };
  Kind kind = Kind::kUnknown;
  std::string reason, message;   // of waiting or having ended
  std::optional<int> exit_code;  // when terminated; -1: no int holds what is said
};

struct ContainerStatus {
  std::string name;
  ContainerState state, last_state;
  int restarts = 0;
  bool ready = false;
};

// Of metadata.ownerReferences, the one that says controller; empty: there is none. Who may write the object may write that, too.
struct ControllingOwner {
  std::string kind, name, uid;
};

struct PodCondition {
  std::string type, status, reason, message;
};

struct Pod : Object {
  std::string phase, reason, message;
  std::string node, pod_ip, host_ip;
  ControllingOwner controller;
  std::vector<PodCondition> conditions;
  std::vector<ContainerStatus> init_containers, containers;

  bool Ready() const;
};
absl::StatusOr<ObjectPtr> DecodePod(absl::string_view json);

}  // namespace fusionllm::kube
