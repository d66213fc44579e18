#include "lib/kube/testing/fake_apply.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

namespace fusionllm::kube::testing {
namespace {

using nlohmann::json;

constexpr char kItem[] = "k:";

// The key of a list's items, if the list is one with keys and all items have it.
const std::string* KeyOf(const std::string& field, const json& list, const ListKeys& keys) {
  const auto known = keys.find(field);
  if (known == keys.end()) return nullptr;
  for (const json& item : list) {
    if (!item.is_object() || !item.contains(known->second) || !item[known->second].is_string()) return nullptr;
  }
  return &known->second;
}

bool IsServersOwn(const FieldPath& path) {
  if (path.size() == 1) return path[0] == "apiVersion" || path[0] == "kind";
  if (path.size() < 2 || path[0] != "metadata") return false;
  for (const char* name : {"name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp",
                           "deletionGracePeriodSeconds", "managedFields", "selfLink", "generateName"}) {
    if (path[1] == name) return true;
  }
  return false;
}

void Collect(const json& value, const ListKeys& keys, FieldPath& path, FieldValues& out) {
  if (IsServersOwn(path)) return;
  if (value.is_object() && !value.empty()) {
    for (const auto& [name, inner] : value.items()) {
      path.push_back(name);
      Collect(inner, keys, path, out);
      path.pop_back();
    }
    return;
  }
  const std::string* const key = value.is_array() && !path.empty() ? KeyOf(path.back(), value, keys) : nullptr;
  if (key == nullptr) {
    if (!path.empty()) out[path] = value;
    return;
  }
  for (const json& item : value) {
    path.push_back(kItem + item[*key].get<std::string>());
    Collect(item, keys, path, out);
    path.pop_back();
  }
}

// The item of the list with that name, made if need be and wanted.
json* Item(json& list, const std::string& key, const std::string& name, bool make) {
  if (!list.is_array()) list = json::array();
  for (json& item : list) {
    if (item.is_object() && item.value(key, "") == name) return &item;
  }
  if (!make) return nullptr;
  list.push_back({{key, name}});
  return &list.back();
}

void Set(json& object, const FieldPath& path, const json& value, const ListKeys& keys) {
  json* at = &object;
  std::string field;
  for (const std::string& step : path) {
    if (absl::StartsWith(step, kItem)) {
      at = Item(*at, keys.at(field), step.substr(2), /*make=*/true);
    } else {
      field = step;
      if (!at->is_object()) *at = json::object();
      at = &(*at)[step];
    }
  }
  *at = value;
}

// Takes the value out, and what is empty without it.
void Erase(json& at, const FieldPath& path, size_t step, const std::string& field, const ListKeys& keys) {
  const std::string& name = path[step];
  const bool last = step + 1 == path.size();
  if (absl::StartsWith(name, kItem)) {
    if (!at.is_array()) return;
    const std::string& key = keys.at(field);
    json* const item = Item(at, key, name.substr(2), /*make=*/false);
    if (item == nullptr) return;
    if (!last) Erase(*item, path, step + 1, "", keys);
    // The last field of an item is its key: without it the item goes.
    if (last || item->empty() || !item->contains(key)) at.erase(at.begin() + (item - &at[0]));
    return;
  }
  if (!at.is_object() || !at.contains(name)) return;
  if (last) {
    at.erase(name);
    return;
  }
  Erase(at[name], path, step + 1, name, keys);
  if (at[name].empty()) at.erase(name);
}

std::string Dotted(const FieldPath& path) {
  std::string text;
  for (const std::string& step : path) {
    absl::StrAppend(&text, absl::StartsWith(step, kItem) ? absl::StrCat("[name=\"", step.substr(2), "\"]") : absl::StrCat(".", step));
  }
  return text;
}

bool OwnedByOthers(const FieldOwners& owners, const FieldManager& manager, const FieldPath& path) {
  return std::any_of(owners.begin(), owners.end(),
                     [&](const auto& owner) { return owner.first != manager && owner.second.contains(path); });
}

}  // namespace

const ListKeys& DefaultListKeys() {
  static const auto* const keys =
      new ListKeys{{"containers", "name"}, {"initContainers", "name"}, {"volumes", "name"},          {"env", "name"},
                   {"conditions", "type"}, {"ownerReferences", "uid"}, {"imagePullSecrets", "name"}, {"volumeMounts", "mountPath"}};
  return *keys;
}

FieldValues Fields(const json& object, const ListKeys& keys) {
  FieldValues out;
  FieldPath path;
  Collect(object, keys, path, out);
  return out;
}

absl::StatusOr<json> ApplyFields(const json& live, const json& applied, const FieldManager& manager, bool force, const ListKeys& keys,
                                 FieldOwners& owners) {
  const FieldValues wanted = Fields(applied, keys);
  const FieldValues present = Fields(live, keys);
  std::vector<std::string> conflicts;
  for (const auto& [path, value] : wanted) {
    const auto now = present.find(path);
    if (now == present.end() || now->second == value) continue;
    for (const auto& [other, owned] : owners) {
      if (other != manager && owned.contains(path)) conflicts.push_back(absl::StrCat("conflict with \"", other.name, "\": ", Dotted(path)));
    }
  }
  if (!conflicts.empty() && !force) {
    return absl::AbortedError(absl::StrCat("Apply failed with ", conflicts.size(), " conflicts: ", absl::StrJoin(conflicts, ", ")));
  }
  json result = live;
  for (const FieldPath& path : owners[manager]) {
    if (!wanted.contains(path) && !OwnedByOthers(owners, manager, path)) Erase(result, path, 0, "", keys);
  }
  std::set<FieldPath> mine;
  for (const auto& [path, value] : wanted) {
    const auto now = present.find(path);
    const bool changes = now == present.end() || now->second != value;
    Set(result, path, value, keys);
    mine.insert(path);
    if (!changes) continue;
    for (auto& [other, owned] : owners) {
      if (other != manager) owned.erase(path);
    }
  }
  owners[manager] = std::move(mine);
  std::erase_if(owners, [](const auto& owner) { return owner.second.empty(); });
  return result;
}

void TakeOwnership(const json& before, const json& after, const FieldManager& manager, const ListKeys& keys, FieldOwners& owners) {
  const FieldValues was = Fields(before, keys);
  const FieldValues is = Fields(after, keys);
  for (const auto& [path, value] : is) {
    const auto old = was.find(path);
    if (old != was.end() && old->second == value) continue;
    for (auto& [other, owned] : owners) owned.erase(path);
    owners[manager].insert(path);
  }
  for (auto& [other, owned] : owners) {
    std::erase_if(owned, [&](const FieldPath& path) { return was.contains(path) && !is.contains(path); });
  }
  std::erase_if(owners, [](const auto& owner) { return owner.second.empty(); });
}

json ManagedFields(const FieldOwners& owners, const std::string& api_version, const std::string& time) {
  json list = json::array();
  for (const auto& [manager, paths] : owners) {
    json fields = json::object();
    for (const FieldPath& path : paths) {
      json* at = &fields;
      for (const std::string& step : path) at = &(*at)[absl::StartsWith(step, kItem) ? step : "f:" + step];
      if (at->is_null()) *at = json::object();
    }
    json entry = {{"manager", manager.name},   {"operation", manager.applies ? "Apply" : "Update"},
                  {"apiVersion", api_version}, {"time", time},
                  {"fieldsType", "FieldsV1"},  {"fieldsV1", std::move(fields)}};
    if (!manager.subresource.empty()) entry["subresource"] = manager.subresource;
    list.push_back(std::move(entry));
  }
  return list;
}

}  // namespace fusionllm::kube::testing
