// What a streaming list has sent so far: a picture that nobody else sees before it is complete. Not thread-safe.
#pragma once

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "lib/kube/watch/object.h"

namespace fusionllm::kube {

class InitialEvents {
 public:
  void Put(ObjectPtr object);
  // Of an object that cannot be read it is known that it is there.
  void PutUnreadable(ObjectPtr metadata);
  void Remove(const ObjectKey& key);

  size_t size() const { return objects_.size() + unreadable_.size(); }
  size_t bytes() const { return bytes_; }  // as Object::Bytes() says

  struct All {
    std::vector<ObjectPtr> objects;
    std::vector<ObjectKey> unreadable;
  };
  All Take() &&;

 private:
  absl::flat_hash_map<ObjectKey, ObjectPtr> objects_, unreadable_;
  size_t bytes_ = 0;
};

}  // namespace fusionllm::kube
