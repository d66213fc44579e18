#include "lib/kube/client/service_account_token.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "lib/base/status_macros.h"
#include "lib/kube/api/json_fields.h"

namespace fusionllm::kube {
namespace {

using nlohmann::json;

const Resource kAccounts = {"", "v1", "serviceaccounts", "ServiceAccount", true};
constexpr int64_t kLatest = 253402300799;  // the last second of the year 9999, behind which times have no text

absl::Status NoToken(absl::string_view why) { return absl::InvalidArgumentError(absl::StrCat("is no token of a service account: ", why)); }

bool IsOfTokens(char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.'; }

// Seconds since 1970, as JWT has them; nothing where there are none.
std::optional<absl::Time> TimeOf(const json& value) {
  const int64_t seconds = IntegerOf(value, -1);
  return seconds < 0 || seconds > kLatest ? std::nullopt : std::optional(absl::FromUnixSeconds(seconds));
}

}  // namespace

absl::StatusOr<ServiceAccountToken> ReadServiceAccountToken(absl::string_view token) {
  if (token.size() > kMaxAccountTokenBytes) return NoToken(absl::StrCat("it is longer than ", kMaxAccountTokenBytes, " bytes"));
  const std::vector<absl::string_view> parts = absl::StrSplit(token, '.');
  std::string text;
  if (parts.size() != 3 || !std::all_of(token.begin(), token.end(), IsOfTokens) || !absl::WebSafeBase64Unescape(parts[1], &text)) {
    return NoToken("it is no JWT");
  }
  const json claims = ParseJson(text);
  const std::string subject = TextAt(claims, "sub");
  absl::string_view account = subject;
  if (!absl::ConsumePrefix(&account, "system:serviceaccount:")) return NoToken("its subject is another");
  const std::vector<std::string> names = absl::StrSplit(account, ':');
  if (names.size() != 2 || names[0].empty() || names[1].empty()) return NoToken("its subject is another");
  ServiceAccountToken read{.account = {names[0], names[1]},
                           .secret = TextAt(claims, "kubernetes.io", "secret", "name"),
                           .secret_uid = TextAt(claims, "kubernetes.io", "secret", "uid")};
  const json& end = At(claims, "exp");
  if (end.is_null()) return read;  // whose issue, too, is not known
  const std::optional<absl::Time> issued_at = TimeOf(At(claims, "iat"));
  read.expires_at = TimeOf(end);
  if (!issued_at.has_value() || !read.expires_at.has_value() || *read.expires_at <= *issued_at) return NoToken("its times make no sense");
  read.issued_at = *issued_at;
  return read;
}

absl::StatusOr<std::string> RequestToken(ApiClient& api, const ServiceAccountToken& of, absl::Duration lifetime, const CallOptions& call) {
  const json request = {{"apiVersion", "authentication.k8s.io/v1"},
                        {"kind", "TokenRequest"},
                        {"spec",
                         {{"expirationSeconds", absl::ToInt64Seconds(std::max(lifetime, kMinTokenLifetime))},
                          {"boundObjectRef", {{"apiVersion", "v1"}, {"kind", "Secret"}, {"name", of.secret}, {"uid", of.secret_uid}}}}}};
  FUSIONLLM_ASSIGN_OR_RETURN(const std::string text,
                             api.Create(kAccounts, of.account.ns, request.dump(-1, ' ', false, json::error_handler_t::replace),
                                        {.subresource = "token", .name = of.account.name}, call));
  std::string token = TextAt(ParseJson(text), "status", "token");
  const absl::StatusOr<ServiceAccountToken> read = ReadServiceAccountToken(token);
  if (!read.ok()) return absl::InternalError(absl::StrCat("what the server answers ", read.status().message()));
  // One that is not bound would outlive the Secret whose deletion is to end it; one without an end, all.
  if (read->account != of.account || read->secret != of.secret || read->secret_uid != of.secret_uid || !read->expires_at.has_value()) {
    return absl::InternalError("the server answers with another token than it was asked for");
  }
  return token;
}

}  // namespace fusionllm::kube
