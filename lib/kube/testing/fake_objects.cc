#include "lib/kube/testing/fake_objects.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "lib/kube/testing/fake_api.h"

namespace fusionllm::kube::testing {
namespace {

bool IsDnsName(const std::string& name) {
  const auto is_end = [](char c) {
    return absl::ascii_islower(static_cast<unsigned char>(c)) || absl::ascii_isdigit(static_cast<unsigned char>(c));
  };
  return !name.empty() && name.size() <= 253 && is_end(name.front()) && is_end(name.back()) &&
         std::all_of(name.begin(), name.end(), [&](char c) { return is_end(c) || c == '-' || c == '.'; });
}

const Json& Metadata(const Json& object) {
  static const auto* const kNone = new Json(Json::object());
  const auto found = object.find("metadata");
  return found != object.end() && found->is_object() ? *found : *kNone;
}

}  // namespace

std::string UidOf(const Json& object) { return Metadata(object).value("uid", ""); }

std::set<std::string> OwnerUids(const Json& object) {
  std::set<std::string> uids;
  for (const Json& owner : Metadata(object).value("ownerReferences", Json::array())) uids.insert(owner.value("uid", ""));
  return uids;
}

bool IsBeingDeleted(const Json& object) { return Metadata(object).contains("deletionTimestamp"); }

bool HasFinalizers(const Json& object) { return !Metadata(object).value("finalizers", Json::array()).empty(); }

absl::Status NotFound(const Resource& resource, absl::string_view name) {
  return Refuse(404, "NotFound", absl::StrCat(resource.Name(), " \"", name, "\" not found"));
}

absl::Status CheckName(const Resource& resource, const std::string& name) {
  if (IsDnsName(name)) return absl::OkStatus();
  const std::string what = name.empty()
                               ? "Required value: name or generateName is required"
                               : absl::StrCat("Invalid value: \"", name,
                                              "\": a lowercase RFC 1123 subdomain must consist of lower case "
                                              "alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character");
  return Refuse(422, "Invalid", absl::StrCat(resource.kind, " \"", name, "\" is invalid: metadata.name: ", what),
                {{name.empty() ? "FieldValueRequired" : "FieldValueInvalid", "metadata.name", what}});
}

absl::Status CheckIdentity(const Resource& resource, const ObjectKey& key, const Json& object) {
  if (!object.is_object() || !object.contains("kind") || !object.contains("apiVersion")) {
    return Refuse(400, "BadRequest", "Object 'Kind' or 'apiVersion' is missing");
  }
  if (object["kind"] != resource.kind || object["apiVersion"] != resource.ApiVersion()) {
    return Refuse(400, "BadRequest",
                  absl::StrCat(object["apiVersion"].dump(), ", Kind=", object["kind"].dump(), " in the data does not match the expected ",
                               resource.ApiVersion(), ", Kind=", resource.kind));
  }
  const Json& metadata = Metadata(object);
  const std::string name = metadata.value("name", "");
  if (!key.name.empty() && name != key.name) {
    return Refuse(400, "BadRequest",
                  absl::StrCat("the name of the object (", name, ") does not match the name on the URL (", key.name, ")"));
  }
  const std::string ns = metadata.value("namespace", "");
  if (!ns.empty() && ns != key.ns) {
    return Refuse(400, "BadRequest", "the namespace of the provided object does not match the namespace sent on the request");
  }
  return absl::OkStatus();
}

absl::Status CheckUnchanged(const Resource& resource, const Json& old, const Json& next) {
  const std::string version = Metadata(next).value("resourceVersion", "");
  const std::string uid = Metadata(next).value("uid", "");
  const std::string name = Metadata(old).value("name", "");
  const std::string what = absl::StrCat("Operation cannot be fulfilled on ", resource.Name(), " \"", name, "\": ");
  if (!uid.empty() && uid != UidOf(old)) {
    return Refuse(409, "Conflict",
                  absl::StrCat(what, "Precondition failed: UID in precondition: ", uid, ", UID in object meta: ", UidOf(old)));
  }
  if (!version.empty() && version != Metadata(old).value("resourceVersion", "")) {
    return Refuse(409, "Conflict",
                  absl::StrCat(what, "the object has been modified; please apply your changes to the latest version and try again"));
  }
  return absl::OkStatus();
}

void KeepServersOwn(const Json& old, Json& next) {
  Json& metadata = next["metadata"];
  for (const char* field : {"uid", "creationTimestamp", "generation", "resourceVersion", "name", "namespace", "deletionTimestamp",
                            "deletionGracePeriodSeconds", "managedFields"}) {
    if (Metadata(old).contains(field)) {
      metadata[field] = Metadata(old)[field];
    } else {
      metadata.erase(field);
    }
  }
  next["kind"] = old["kind"];
  next["apiVersion"] = old["apiVersion"];
}

bool SameOutside(const Json& a, const Json& b, const std::set<std::string>& fields) {
  Json left = a, right = b;
  for (const std::string& field : fields) {
    left.erase(field);
    right.erase(field);
  }
  return left == right;
}

bool SameButOwners(const Json& a, const Json& b) {
  Json left = Metadata(a), right = Metadata(b);
  for (const char* field : {"resourceVersion", "generation", "managedFields"}) {
    left.erase(field);
    right.erase(field);
  }
  return left == right && SameOutside(a, b, {"metadata"});
}

absl::Status Refuse(int code, std::string reason, std::string message, std::vector<ErrorCause> causes) {
  ApiError error;
  error.code = code;
  error.reason = std::move(reason);
  error.message = std::move(message);
  error.causes = std::move(causes);
  return ToStatus(error);
}

Json StatusObject(const ApiError& error) {
  Json status = {{"kind", "Status"},   {"apiVersion", "v1"},     {"metadata", Json::object()}, {"status", "Failure"},
                 {"code", error.code}, {"reason", error.reason}, {"message", error.message}};
  for (const ErrorCause& cause : error.causes) {
    status["details"]["causes"].push_back({{"reason", cause.reason}, {"field", cause.field}, {"message", cause.message}});
  }
  return status;
}

}  // namespace fusionllm::kube::testing
