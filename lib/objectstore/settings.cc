#include "lib/objectstore/settings.h"

#include <algorithm>
#include <cstdlib>
#include <initializer_list>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace fusionllm::objectstore {
namespace {

constexpr char kDefaultRegion[] = "us-east-1";

// One that is empty counts as not set, as with Amazon's own tools.
std::string FirstOf(const Environment& environment, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (const std::optional<std::string> value = environment(name); value.has_value() && !value->empty()) return *value;
  }
  return "";
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
  settings.access_key_id = FirstOf(environment, {"AWS_ACCESS_KEY_ID"});
  settings.secret_access_key = FirstOf(environment, {"AWS_SECRET_ACCESS_KEY"});
  for (const auto& [name, value] :
       {std::pair("AWS_ACCESS_KEY_ID", &settings.access_key_id), std::pair("AWS_SECRET_ACCESS_KEY", &settings.secret_access_key)}) {
    if (value->empty()) return absl::InvalidArgumentError(absl::StrCat("an object store is named, and ", name, " is not set"));
  }
  settings.session_token = FirstOf(environment, {"AWS_SESSION_TOKEN"});
  settings.region = FirstOf(environment, {"AWS_REGION", "AWS_DEFAULT_REGION"});
  if (settings.region.empty()) settings.region = kDefaultRegion;
  if (!IsRegion(settings.region)) return absl::InvalidArgumentError("AWS_REGION is no name of a region");
  settings.endpoint = FirstOf(environment, {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"});
  if (settings.endpoint.empty()) settings.endpoint = absl::StrCat("https://s3.", settings.region, ".amazonaws.com");
  settings.endpoint = std::string(absl::StripSuffix(settings.endpoint, "/"));
  if (!IsEndpoint(settings.endpoint)) {
    return absl::InvalidArgumentError("AWS_ENDPOINT_URL_S3, or AWS_ENDPOINT_URL, is no http://HOST[:PORT] or https://HOST[:PORT]");
  }
  settings.ca_file = FirstOf(environment, {"AWS_CA_BUNDLE"});
  return settings;
}

}  // namespace fusionllm::objectstore
