#include "lib/kube/watch/store.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

namespace fusionllm::kube {

void Store::AddIndex(const std::string& name, IndexFunction function) { indexes_[name].function = std::move(function); }

ObjectPtr Store::Put(ObjectPtr object) {
  ObjectPtr& place = objects_[object->meta.Key()];
  ObjectPtr old = std::exchange(place, std::move(object));
  if (old != nullptr) Leave(old);
  Enter(place);
  return old;
}

ObjectPtr Store::Remove(const ObjectKey& key) {
  const auto found = objects_.find(key);
  if (found == objects_.end()) return nullptr;
  ObjectPtr old = std::move(found->second);
  objects_.erase(found);
  Leave(old);
  return old;
}

ObjectPtr Store::Get(const ObjectKey& key) const {
  const auto found = objects_.find(key);
  return found == objects_.end() ? nullptr : found->second;
}

std::vector<ObjectPtr> Store::Find(const std::string& index, const std::string& value) const {
  const auto found = indexes_.find(index);
  if (found == indexes_.end()) {
    std::fprintf(stderr, "kube: a store has no index %s\n", index.c_str());
    std::abort();
  }
  const auto objects = found->second.values.find(value);
  if (objects == found->second.values.end()) return {};
  return {objects->second.begin(), objects->second.end()};
}

std::vector<ObjectPtr> Store::All() const {
  std::vector<ObjectPtr> all;
  all.reserve(objects_.size());
  for (const auto& [key, object] : objects_) all.push_back(object);
  return all;
}

std::vector<ObjectKey> Store::Keys() const {
  std::vector<ObjectKey> keys;
  keys.reserve(objects_.size());
  for (const auto& [key, object] : objects_) keys.push_back(key);
  return keys;
}

void Store::Enter(const ObjectPtr& object) {
  for (auto& [name, index] : indexes_) {
    for (const std::string& value : index.function(*object)) index.values[value].insert(object);
  }
}

void Store::Leave(const ObjectPtr& object) {
  for (auto& [name, index] : indexes_) {
    for (const std::string& value : index.function(*object)) {
      const auto found = index.values.find(value);
      if (found == index.values.end()) continue;
      found->second.erase(object);
      if (found->second.empty()) index.values.erase(found);
    }
  }
}

}  // namespace fusionllm::kube
