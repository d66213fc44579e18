#include "operator/controller/job_objects.h"

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/kube/api/api_error.h"
#include "lib/kube/api/json_fields.h"
#include "operator/manifests/resources.h"

namespace fusionllm::op::controller {

using kube::At;
using kube::TextAt;
using nlohmann::json;

namespace {

// Null: it has none.
const json& ControllerOf(const json& object) {
  static const auto& kNone = *new json();
  for (const json& owner : kube::ListOf(At(object, "metadata", "ownerReferences"))) {
    if (At(owner, "controller") == true) return owner;
  }
  return kNone;
}

}  // namespace

absl::StatusOr<json> JobObjects::Find(const kube::Resource& resource, const std::string& name) const {
  const absl::StatusOr<std::string> answer = member_.client().Get(resource, {job_.ns, name}, call_);
  if (kube::IsApiNotFound(answer.status())) return json();
  FUSIONLLM_RETURN_IF_ERROR(answer.status());
  json there = kube::ParseJson(*answer);
  if (!there.is_object()) return absl::InternalError(absl::StrCat("no object in the answer for ", resource.kind, " ", name));
  if (TextAt(there, "metadata", "labels", manifests::kJobUidLabel) != job_.uid) return NameConflict(resource, name);
  return there;
}

absl::Status JobObjects::Put(const kube::Resource& resource, json object, const json& there) const {
  const kube::ObjectKey key{job_.ns, object.at("metadata").at("name")};
  if (!there.is_null()) object["metadata"]["resourceVersion"] = TextAt(there, "metadata", "resourceVersion");
  const absl::Status status =
      member_.client().Apply(resource, key, object.dump(), {.field_manager = manifests::kFieldManager}, call_).status();
  if (!kube::IsApiConflict(status)) return status;
  return absl::UnavailableError(absl::StrCat(resource.kind, " ", key.name, " in cluster ", member_.name(), " was changed meanwhile"));
}

absl::Status JobObjects::NameConflict(const kube::Resource& resource, const std::string& name) const {
  return absl::AlreadyExistsError(
      absl::StrCat(resource.kind, " ", name, " in namespace ", job_.ns, " exists already and is not owned by this job"));
}

std::string OwnerUidOf(const json& object) { return TextAt(ControllerOf(object), "uid"); }

std::string OwnerNameOf(const json& object) { return TextAt(ControllerOf(object), "name"); }

}  // namespace fusionllm::op::controller
