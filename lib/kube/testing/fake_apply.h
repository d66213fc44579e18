// Who owns which field of an object, and server-side apply by it: as much as a controller's tests need.
//
// Lists are values in one piece, but for those whose items have names (containers, volumes, env, conditions, ...), as in the API server's
// schemas. Not thread-safe.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace fusionllm::kube::testing {

// Steps from the object to a value: names of fields, and "k:NAME" for the item of a list with that name.
using FieldPath = std::vector<std::string>;
using FieldValues = std::map<FieldPath, nlohmann::json>;

// Fields that are lists whose items have a key: {"conditions", "type"}.
using ListKeys = std::map<std::string, std::string>;
const ListKeys& DefaultListKeys();

struct FieldManager {
  std::string name;
  bool applies = false;  // by apply, else by other writes
  std::string subresource;
  auto operator<=>(const FieldManager&) const = default;
};

using FieldOwners = std::map<FieldManager, std::set<FieldPath>>;

// All values of the object that somebody can own: not its identity, nor what the server sets itself.
FieldValues Fields(const nlohmann::json& object, const ListKeys& keys);

// `live` with the applied object's values and without those that the manager owned and now leaves out. Conflicts name the other owners:
// Aborted, unless `force`. Updates `owners` when there is no error.
absl::StatusOr<nlohmann::json> ApplyFields(const nlohmann::json& live, const nlohmann::json& applied, const FieldManager& manager,
                                           bool force, const ListKeys& keys, FieldOwners& owners);

// After another write: what it has changed is the manager's alone, what is gone has no owner.
void TakeOwnership(const nlohmann::json& before, const nlohmann::json& after, const FieldManager& manager, const ListKeys& keys,
                   FieldOwners& owners);

// metadata.managedFields.
nlohmann::json ManagedFields(const FieldOwners& owners, const std::string& api_version, const std::string& time);

}  // namespace fusionllm::kube::testing
