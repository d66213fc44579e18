#include "lib/kube/watch/initial_events.h"

#include <utility>

namespace fusionllm::kube {

void InitialEvents::Remove(const ObjectKey& key) {
  for (auto* kept : {&objects_, &unreadable_}) {
    const auto at = kept->find(key);
    if (at == kept->end()) continue;
    bytes_ -= at->second->Bytes();
    kept->erase(at);
  }
}

void InitialEvents::Put(ObjectPtr object) {
  const ObjectKey key = object->meta.Key();
  Remove(key);
  bytes_ += object->Bytes();
  objects_[key] = std::move(object);
}

void InitialEvents::PutUnreadable(ObjectPtr metadata) {
  const ObjectKey key = metadata->meta.Key();
  Remove(key);
  bytes_ += metadata->Bytes();
  unreadable_[key] = std::move(metadata);
}

InitialEvents::All InitialEvents::Take() && {
  All all;
  all.objects.reserve(objects_.size());
  for (auto& [key, object] : objects_) all.objects.push_back(std::move(object));
  for (const auto& [key, metadata] : unreadable_) all.unreadable.push_back(key);
  objects_.clear();
  unreadable_.clear();
  bytes_ = 0;
  return all;
}

}  // namespace fusionllm::kube
