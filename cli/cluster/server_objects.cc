#include "cli/cluster/server_objects.h"

#include "absl/strings/str_cat.h"
#include "cli/cluster/member_objects.h"
#include "lib/base/status_macros.h"
#include "lib/kube/api/api_error.h"

namespace fusionllm::cli {

using nlohmann::json;

json Parsed(const std::string& text) { return json::parse(text, nullptr, /*allow_exceptions=*/false); }

std::string TextAt(const json& object, const char* pointer) {
  const json::json_pointer at(pointer);
  return object.is_object() && object.contains(at) && object[at].is_string() ? object[at].get<std::string>() : "";
}

absl::StatusOr<json> Existing(kube::ApiClient& client, const kube::Resource& resource, const kube::ObjectKey& key) {
  const absl::StatusOr<std::string> found = client.Get(resource, key);
  if (kube::IsApiNotFound(found.status())) return json();
  FUSIONLLM_RETURN_IF_ERROR(found.status());
  return Parsed(*found);
}

bool MadeByUs(const json& object) {
  return object.contains("metadata") && object["metadata"].value("labels", json::object()).value(kManagedBy, "") == kFieldManager;
}

absl::Status Named(const absl::Status& status, const std::string& where, const kube::Resource& resource, const kube::ObjectKey& key) {
  return absl::Status(status.code(), absl::StrCat(where, ": ", resource.kind, " ", key.ToString(), ": ", status.message()));
}

}  // namespace fusionllm::cli
