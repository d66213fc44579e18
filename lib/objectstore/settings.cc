#include "lib/objectstore/settings.h"

#include <algorithm>
#include <cstdlib>
#include <initializer_list>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "lib/base/status_macros.h"

namespace fusionllm::objectstore {
namespace {

constexpr char kDefaultRegion[] = "us-east-1";

struct Variable {
  const char* name = "";
  std::string value;
};

// The first that is set, without white space at its ends: what comes out of a file or of `echo` ends in a line feed. One that is empty then
// counts as not set, as with Amazon's own tools.
Variable FirstOf(const Environment& environment, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const std::optional<std::string> value = environment(name);
    const absl::string_view trimmed = value.has_value() ? absl::StripAsciiWhitespace(*value) : "";
    if (!trimmed.empty()) return {name, std::string(trimmed)};
  }
  return {};
}

// White space or control characters within a value would break a header or a signature.
absl::Status CheckVisible(const Variable& variable) {
  const bool visible = std::all_of(variable.value.begin(), variable.value.end(), [](char c) {
    return !absl::ascii_isspace(static_cast<unsigned char>(c)) && !absl::ascii_iscntrl(static_cast<unsigned char>(c));
  });
  return visible ? absl::OkStatus()
                 : absl::InvalidArgumentError(absl::StrCat(variable.name, " has a blank, a line break or a control character in it"));
}

bool IsEndpoint(absl::string_view url) {
  if (!absl::ConsumePrefix(&url, "https://") && !absl::ConsumePrefix(&url, "http://")) return false;
  return !url.empty() && url.find_first_of("/?#@ ") == absl::string_view::npos;
}

bool IsRegion(absl::string_view region) {
  return std::all_of(region.begin(), region.end(), [](char c) { return absl::ascii_isalnum(c) || c == '-' || c == '_'; });
}

}  // namespace

std::optional<std::string> ProcessEnvironment(const char* name) {
  const char* const value = std::getenv(name);
  if (value == nullptr) return std::nullopt;
  return value;
}

absl::StatusOr<StoreSettings> SettingsFrom(const Environment& environment) {
  StoreSettings settings;
  const Variable key = FirstOf(environment, {"AWS_ACCESS_KEY_ID"}), secret = FirstOf(environment, {"AWS_SECRET_ACCESS_KEY"});
  for (const auto& [name, variable] : {std::pair("AWS_ACCESS_KEY_ID", &key), std::pair("AWS_SECRET_ACCESS_KEY", &secret)}) {
    if (!variable->value.empty()) continue;
    return absl::InvalidArgumentError(absl::StrCat("an object store is named, and ", name,
                                                   " is not set; in Kubernetes it is a key of the Secret that "
                                                   "spec.objectStore.secretName names"));
  }
  const Variable token = FirstOf(environment, {"AWS_SESSION_TOKEN"});
  const Variable region = FirstOf(environment, {"AWS_REGION", "AWS_DEFAULT_REGION"});
  const Variable endpoint = FirstOf(environment, {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"});
  for (const Variable* variable : {&key, &secret, &token, &region, &endpoint}) FUSIONLLM_RETURN_IF_ERROR(CheckVisible(*variable));
  settings.access_key_id = key.value;
  settings.secret_access_key = secret.value;
  settings.session_token = token.value;
  settings.region = region.value.empty() ? kDefaultRegion : region.value;
  if (!IsRegion(settings.region)) return absl::InvalidArgumentError(absl::StrCat(region.name, " is no name of a region"));
  settings.endpoint = endpoint.value.empty() ? absl::StrCat("https://s3.", settings.region, ".amazonaws.com") : endpoint.value;
  settings.endpoint = std::string(absl::StripSuffix(settings.endpoint, "/"));
  if (!IsEndpoint(settings.endpoint)) {
    return absl::InvalidArgumentError(absl::StrCat(endpoint.name, " is no http://HOST[:PORT] or https://HOST[:PORT]"));
  }
  settings.ca_file = FirstOf(environment, {"AWS_CA_BUNDLE"}).value;
  return settings;
}

}  // namespace fusionllm::objectstore
