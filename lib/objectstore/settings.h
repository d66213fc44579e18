// Where the object store is and as whom to speak to it: the environment variables that the tools of Amazon's S3 read.
//
// White space at the ends of a value counts as not there.
//
//   AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY   required
//   AWS_SESSION_TOKEN                          of temporary credentials
//   AWS_REGION, AWS_DEFAULT_REGION             else us-east-1
//   AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL      else Amazon's of the region
//   AWS_CA_BUNDLE                              file of the authorities that certify the endpoint; else those of the machine
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace fusionllm::objectstore {

struct StoreSettings {
  std::string endpoint;  // http(s)://HOST[:PORT], without a slash at its end; a bucket is the first part of its paths
  std::string region;
  std::string access_key_id, secret_access_key;
  std::string session_token;  // empty: none
  std::string ca_file;        // empty: the machine's
};

// Every variable that SettingsFrom asks for.
inline constexpr const char* kSettingsVariables[] = {"AWS_ACCESS_KEY_ID",  "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION",
                                                     "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL_S3",   "AWS_ENDPOINT_URL",  "AWS_CA_BUNDLE"};

using Environment = std::function<std::optional<std::string>(const char* name)>;
// That of this process.
std::optional<std::string> ProcessEnvironment(const char* name);

// Errors: InvalidArgument that names the variable which is missing or cannot be. No message holds a secret.
absl::StatusOr<StoreSettings> SettingsFrom(const Environment& environment);

}  // namespace fusionllm::objectstore
