#include "lib/kube/watch/store.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace fusionllm::kube {

void Store::AddIndex(const std::string& name, IndexFunction function) { indexes_[name].function = std::move(function); }

ObjectPtr Store::Put(ObjectPtr object) {
  ObjectPtr old = Remove(object->meta.Key());
  Enter(object);
  bytes_ += object->Bytes();
  objects_.insert(std::move(object));
  return old;
}

ObjectPtr Store::Remove(const ObjectKey& key) {
  const auto found = objects_.find(key);
  if (found == objects_.end()) return nullptr;
  ObjectPtr old = *found;
  objects_.erase(found);
  bytes_ -= old->Bytes();
  Leave(old);
  return old;
}

ObjectPtr Store::Get(const ObjectKey& key) const {
  const auto found = objects_.find(key);
  return found == objects_.end() ? nullptr : *found;
}

std::vector<ObjectPtr> Store::Find(const std::string& index, const std::string& value) const {
  const auto found = indexes_.find(index);
  if (found == indexes_.end()) {
    std::fprintf(stderr, "kube: a store has no index %s\n", index.c_str());
    std::abort();
  }
  const auto& [function, entries] = found->second;
  const size_t hash = absl::HashOf(value);
  std::vector<ObjectPtr> objects;
  for (auto at = entries.lower_bound({hash, nullptr}); at != entries.end() && at->first == hash; ++at) {
    const std::vector<std::string> values = function(*at->second);  // another one may have the same hash
    if (std::find(values.begin(), values.end(), value) != values.end()) objects.push_back(at->second);
  }
  return objects;
}

std::vector<ObjectPtr> Store::All() const { return {objects_.begin(), objects_.end()}; }

std::vector<ObjectKey> Store::Keys() const {
  std::vector<ObjectKey> keys;
  keys.reserve(objects_.size());
  for (const ObjectPtr& object : objects_) keys.push_back(object->meta.Key());
  return keys;
}

void Store::Enter(const ObjectPtr& object) {
  for (auto& [name, index] : indexes_) {
    for (const std::string& value : index.function(*object)) index.entries.emplace(absl::HashOf(value), object);
  }
}

void Store::Leave(const ObjectPtr& object) {
  for (auto& [name, index] : indexes_) {
    for (const std::string& value : index.function(*object)) index.entries.erase({absl::HashOf(value), object});
  }
}

}  // namespace fusionllm::kube
