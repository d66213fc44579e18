#include "lib/kube/client/access_review.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/kube/api/json_fields.h"

namespace fusionllm::kube {
namespace {

using nlohmann::json;

const Resource kReviews = {"authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", false};

absl::StatusOr<bool> Allowed(ApiClient& api, const Permission& permission, const CallOptions& call) {
  const json attributes = {{"verb", permission.verb},
                           {"group", permission.resource.group},
                           {"version", permission.resource.version},
                           {"resource", permission.resource.plural},
                           {"subresource", permission.subresource},
                           {"namespace", permission.ns}};
  const json review = {{"apiVersion", kReviews.ApiVersion()}, {"kind", kReviews.kind}, {"spec", {{"resourceAttributes", attributes}}}};
  FUSIONLLM_ASSIGN_OR_RETURN(const std::string text,
                             api.Create(kReviews, "", review.dump(-1, ' ', false, json::error_handler_t::replace), {}, call));
  const json answer = ParseJson(text);
  const json& allowed = At(answer, "status", "allowed");
  if (!allowed.is_boolean()) return absl::InternalError("the server's answer to an access review has no status.allowed");
  return allowed.get<bool>();
}

}  // namespace

std::string Permission::ToString() const {
  return absl::StrCat(verb, " ", resource.Name(), subresource.empty() ? "" : "/", subresource, ns.empty() ? "" : " in namespace ", ns);
}

absl::StatusOr<std::vector<Permission>> MissingPermissions(ApiClient& api, const std::vector<Permission>& wanted, const CallOptions& call) {
  std::vector<Permission> missing;
  for (const Permission& permission : wanted) {
    FUSIONLLM_ASSIGN_OR_RETURN(const bool allowed, Allowed(api, permission, call));
    if (!allowed) missing.push_back(permission);
  }
  return missing;
}

}  // namespace fusionllm::kube
