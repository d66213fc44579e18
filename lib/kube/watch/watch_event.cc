#include "lib/kube/watch/watch_event.h"

#include "lib/kube/api/resource_version.h"
#include "lib/kube/watch/json_reading.h"

namespace fusionllm::kube {
namespace {

WatchEventType TypeOf(absl::string_view name) {
  if (name == "ADDED") return WatchEventType::kAdded;
  if (name == "MODIFIED") return WatchEventType::kModified;
  if (name == "DELETED") return WatchEventType::kDeleted;
  if (name == "BOOKMARK") return WatchEventType::kBookmark;
  if (name == "ERROR") return WatchEventType::kError;
  return WatchEventType::kUnknown;
}

}  // namespace

absl::StatusOr<WatchEvent> ParseWatchEvent(absl::string_view line) {
  WatchEvent event;
  const absl::Status status = ReadJson(line, [&](simdjson::ondemand::object root) {
    for (auto field : root) {
      const std::string_view name = field.unescaped_key();
      JsonValue value = field.value();
      if (name == "type") {
        event.type_name = std::string(value.get_string().value().substr(0, 64));
        event.type = TypeOf(event.type_name);
      } else if (name == "object") {
        event.object = value.get_object().value().raw_json().value();
      }
    }
  });
  if (!status.ok()) return status;
  if (event.type_name.empty() || event.object.empty()) return absl::InvalidArgumentError("an event of a watch without type or object");
  return event;
}

absl::StatusOr<std::string> ParseBookmark(absl::string_view object) {
  std::string version;
  const absl::Status status = ReadJson(object, [&](simdjson::ondemand::object root) {
    for (auto field : root) {
      if (field.unescaped_key().value() != "metadata") continue;
      ForEachField(field.value(), [&](std::string_view name, JsonValue value) {
        if (name == "resourceVersion") version = TextOf(value);
      });
    }
  });
  if (!status.ok()) return status;
  if (!IsResourceVersion(version)) return absl::InvalidArgumentError("a bookmark without a resource version");
  return version;
}

std::string KindOf(absl::string_view object) {
  std::string kind;
  const absl::Status status = ReadJson(object, [&](simdjson::ondemand::object root) {
    for (auto field : root) {
      if (field.unescaped_key().value() == "kind") kind = TextOf(field.value());
    }
  });
  return status.ok() ? kind : std::string();
}

}  // namespace fusionllm::kube
