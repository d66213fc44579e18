// What the commands about clusters read of objects on a server.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/kube/api/resource.h"
#include "lib/kube/client/api_client.h"

namespace fusionllm::cli {

// Text as JSON; discarded (is_discarded()) where it is none.
nlohmann::json Parsed(const std::string& text);

// The text at a path of keys ("/spec/name"); empty where there is none.
std::string TextAt(const nlohmann::json& object, const char* pointer);

// As it is on the server; null if it is not. Errors: the server's.
absl::StatusOr<nlohmann::json> Existing(kube::ApiClient& client, const kube::Resource& resource, const kube::ObjectKey& key);

// Whether `fusionctl cluster add` made it.
bool MadeByUs(const nlohmann::json& object);

// The error with the server's role ("hub") and the object before it.
absl::Status Named(const absl::Status& status, const std::string& where, const kube::Resource& resource, const kube::ObjectKey& key);

}  // namespace fusionllm::cli
