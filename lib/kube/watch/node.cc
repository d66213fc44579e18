#include "lib/kube/watch/node.h"

#include "lib/kube/watch/object_metadata.h"
#include "lib/kube/watch/resource_list_reading.h"

namespace fusionllm::kube {
namespace {

void ReadNodeSpec(JsonValue spec, Node& node) {
  ForEachField(spec, [&](std::string_view field, JsonValue value) {
    if (field == "unschedulable" && !value.is_null()) node.unschedulable = value.get_bool();
    if (field != "taints") return;
    ForEachElement(value, [&](JsonValue element) {
      Taint& taint = node.taints.emplace_back();
      ForEachField(element, [&](std::string_view of_taint, JsonValue text) {
        if (of_taint == "key") taint.key = TextOf(text);
        if (of_taint == "value") taint.value = TextOf(text);
        if (of_taint == "effect") taint.effect = TextOf(text);
      });
    });
  });
}

void ReadReadiness(JsonValue conditions, Node& node) {
  ForEachElement(conditions, [&](JsonValue condition) {
    std::string type, status, since;
    ForEachField(condition, [&](std::string_view field, JsonValue value) {
      if (field == "type") type = TextOf(value);
      if (field == "status") status = TextOf(value);
      if (field == "lastTransitionTime") since = TextOf(value);
    });
    if (type != "Ready") return;
    node.ready = status == "True";
    if (absl::Time at; !node.ready && absl::ParseTime(absl::RFC3339_full, since, &at, nullptr)) node.away_since = at;
  });
}

void ReadNodeStatus(JsonValue status, Node& node) {
  ForEachField(status, [&](std::string_view field, JsonValue value) {
    if (field == "allocatable") node.allocatable = ReadResourceList(value);
    if (field == "conditions") ReadReadiness(value, node);
    if (field == "nodeInfo") {
      ForEachField(value, [&](std::string_view of_info, JsonValue text) {
        if (of_info == "kubeletVersion") node.kubelet_version = TextOf(text);
      });
    }
  });
}

}  // namespace

size_t Node::Bytes() const {
  size_t bytes = Object::Bytes() + BytesOf(allocatable) + kubelet_version.size();
  for (const Taint& taint : taints) bytes += sizeof(taint) + taint.key.size() + taint.value.size() + taint.effect.size();
  return bytes;
}

absl::StatusOr<ObjectPtr> DecodeNode(absl::string_view json) {
  const auto node = std::make_shared<Node>();
  absl::Status status = ReadJson(json, [&](simdjson::ondemand::object root) {
    for (auto field : root) {
      const std::string_view name = field.unescaped_key();
      if (name == "metadata") ReadMetadata(field.value(), node->meta);
      if (name == "spec") ReadNodeSpec(field.value(), *node);
      if (name == "status") ReadNodeStatus(field.value(), *node);
    }
  });
  if (status.ok()) status = CheckMetadata(node->meta);
  if (!status.ok()) return status;
  return node;
}

}  // namespace fusionllm::kube
