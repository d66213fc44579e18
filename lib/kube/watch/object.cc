#include "lib/kube/watch/object.h"

#include "lib/kube/api/resource_version.h"
#include "lib/kube/watch/object_metadata.h"

namespace fusionllm::kube {

absl::string_view ObjectMeta::Label(absl::string_view name) const { return AnnotationOf(labels, name); }

absl::string_view AnnotationOf(const Annotations& annotations, absl::string_view name) {
  for (const auto& [key, value] : annotations) {
    if (key == name) return value;
  }
  return {};
}

namespace {

void ReadController(JsonValue owners, ControllingOwner& controller) {
  ForEachElement(owners, [&](JsonValue owner) {
    ControllingOwner read;
    bool controls = false;
    ForEachField(owner, [&](std::string_view field, JsonValue value) {
      if (field == "kind") read.kind = TextOf(value);
      if (field == "name") read.name = TextOf(value);
      if (field == "uid") read.uid = TextOf(value);
      if (field == "controller") controls = value.type() == simdjson::ondemand::json_type::boolean && bool(value.get_bool());
    });
    if (controls) controller = std::move(read);
  });
}

}  // namespace

void ReadMetadata(JsonValue metadata, ObjectMeta& meta, std::string_view* managed_fields, Annotations* annotations,
                  ControllingOwner* controller) {
  ForEachField(metadata, [&](std::string_view field, JsonValue value) {
    if (field == "namespace") {
      meta.ns = TextOf(value);
    } else if (field == "name") {
      meta.name = TextOf(value);
    } else if (field == "uid") {
      meta.uid = TextOf(value);
    } else if (field == "resourceVersion") {
      meta.resource_version = TextOf(value);
    } else if (field == "deletionTimestamp") {
      meta.deletion_timestamp = TextOf(value);
    } else if (field == "creationTimestamp") {
      absl::Time at;
      if (absl::ParseTime(absl::RFC3339_full, TextOf(value), &at, nullptr)) meta.created_at = at;
    } else if (field == "labels") {
      ForEachField(value, [&](std::string_view label, JsonValue text) { meta.labels.emplace_back(label, TextOf(text)); });
      meta.labels.shrink_to_fit();
    } else if (field == "annotations" && annotations != nullptr) {
      ForEachField(value, [&](std::string_view name, JsonValue text) {
        if (text.type() == simdjson::ondemand::json_type::string) annotations->emplace_back(name, TextOf(text));
      });
    } else if (field == "ownerReferences" && controller != nullptr) {
      ReadController(value, *controller);
    } else if (field == "managedFields" && managed_fields != nullptr && !value.is_null()) {
      *managed_fields = value.get_array().value().raw_json();
    }
  });
}

absl::Status CheckMetadata(const ObjectMeta& meta) {
  if (meta.name.empty()) return absl::InvalidArgumentError("an object without metadata.name");
  if (!IsResourceVersion(meta.resource_version)) {
    return absl::InvalidArgumentError(absl::StrCat("metadata.resourceVersion of ", meta.Key().ToString(), " is no resource version: \"",
                                                   absl::string_view(meta.resource_version).substr(0, 64), "\""));
  }
  return absl::OkStatus();
}

size_t Object::Bytes() const {
  size_t bytes =
      kOwnBytes + meta.ns.size() + meta.name.size() + meta.uid.size() + meta.resource_version.size() + meta.deletion_timestamp.size();
  for (const auto& label : meta.labels) bytes += sizeof(label) + label.first.size() + label.second.size();
  return bytes;
}

namespace {

absl::Status ReadMeta(absl::string_view json, ObjectMeta& meta, Annotations* annotations) {
  const absl::Status status = ReadJson(json, [&](simdjson::ondemand::object root) {
    for (auto field : root) {
      if (field.unescaped_key().value() == "metadata") ReadMetadata(field.value(), meta, nullptr, annotations);
    }
  });
  return status.ok() ? CheckMetadata(meta) : status;
}

}  // namespace

absl::StatusOr<ObjectPtr> DecodeMetadata(absl::string_view json) {
  const auto object = std::make_shared<Object>();
  if (absl::Status status = ReadMeta(json, object->meta, nullptr); !status.ok()) return status;
  return object;
}

absl::Status ReadAnnotated(absl::string_view json, ObjectMeta& meta, Annotations& annotations) {
  return ReadMeta(json, meta, &annotations);
}

absl::StatusOr<ObjectPtr> DecodeJson(absl::string_view json) {
  const auto object = std::make_shared<JsonObject>();
  absl::Status status = ReadJson(json, [&](simdjson::ondemand::object root) {
    const std::string_view text = root.raw_json();
    root.reset();
    std::string_view managed;
    for (auto field : root) {
      if (field.unescaped_key().value() == "metadata") ReadMetadata(field.value(), object->meta, &managed);
    }
    if (managed.empty()) {
      object->json = text;
      return;
    }
    const auto at = static_cast<size_t>(managed.data() - text.data());
    object->json = absl::StrCat(View(text.substr(0, at)), "[]", View(text.substr(at + managed.size())));
  });
  if (status.ok()) status = CheckMetadata(object->meta);
  if (!status.ok()) return status;
  return object;
}

}  // namespace fusionllm::kube
