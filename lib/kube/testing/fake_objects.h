// What a fake API server knows of every object: its metadata, and how the real one words what is wrong with it.
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lib/kube/api/resource.h"

namespace fusionllm::kube::testing {

std::string UidOf(const nlohmann::json& object);
std::set<std::string> OwnerUids(const nlohmann::json& object);
bool IsBeingDeleted(const nlohmann::json& object);
bool HasFinalizers(const nlohmann::json& object);

// 404 of the server's own words.
absl::Status NotFound(const Resource& resource, absl::string_view name);
// 422 unless it is a name as DNS has it.
absl::Status CheckName(const Resource& resource, const std::string& name);
// 400 when kind, apiVersion, name or namespace of the body are not those of the path.
absl::Status CheckIdentity(const Resource& resource, const ObjectKey& key, const nlohmann::json& object);
// 409 when the body was made from another version, or for another object of the name.
absl::Status CheckUnchanged(const Resource& resource, const nlohmann::json& old, const nlohmann::json& next);

// Puts back what no client may change.
void KeepServersOwn(const nlohmann::json& old, nlohmann::json& next);
// Equal in all fields at the top but those.
bool SameOutside(const nlohmann::json& a, const nlohmann::json& b, const std::set<std::string>& fields);
// Equal but for resourceVersion, generation and managedFields.
bool SameButOwners(const nlohmann::json& a, const nlohmann::json& b);

}  // namespace fusionllm::kube::testing
