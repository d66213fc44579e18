#include "lib/kube/testing/fake_token.h"

#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace fusionllm::kube::testing {

std::string FakeToken(const FakeTokenClaims& claims) {
  using nlohmann::json;
  json body = {{"iss", "https://kubernetes.default.svc"},
               {"sub", absl::StrCat("system:serviceaccount:", claims.account.ns, ":", claims.account.name)},
               {"iat", absl::ToUnixSeconds(claims.issued_at)}};
  if (claims.expires_at.has_value()) body["exp"] = absl::ToUnixSeconds(*claims.expires_at);
  json& kubernetes = body["kubernetes.io"];
  kubernetes = {{"namespace", claims.account.ns}, {"serviceaccount", {{"name", claims.account.name}}}};
  if (!claims.secret.empty()) kubernetes["secret"] = {{"name", claims.secret}, {"uid", claims.secret_uid}};
  return absl::StrCat(absl::WebSafeBase64Escape(R"({"alg":"RS256"})"), ".", absl::WebSafeBase64Escape(body.dump()), ".c2lnbmF0dXJl");
}

}  // namespace fusionllm::kube::testing
