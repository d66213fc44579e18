// The objects of one kind as last seen, with indexes, and how far that goes. Not thread-safe: an Informer guards its own.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_set.h"
#include "absl/hash/hash.h"
#include "lib/kube/api/resource.h"
#include "lib/kube/watch/object.h"

namespace fusionllm::kube {

// The values under which an object is found in an index: the uid of its owner, the node it runs on. May be none.
using IndexFunction = std::function<std::vector<std::string>(const Object& object)>;

class Store {
 public:
  // Before the first object.
  void AddIndex(const std::string& name, IndexFunction function);

  // Puts an object in place of that of the same key; the latter, or null, is returned.
  ObjectPtr Put(ObjectPtr object);
  ObjectPtr Remove(const ObjectKey& key);

  ObjectPtr Get(const ObjectKey& key) const;
  // In no order, and in another one in each process. In time linear in the objects found, but for the way to the first. The index must
  // have been added.
  std::vector<ObjectPtr> Find(const std::string& index, const std::string& value) const;
  std::vector<ObjectPtr> All() const;
  std::vector<ObjectKey> Keys() const;
  size_t size() const { return objects_.size(); }
  // Of all objects, as Object::Bytes() says.
  size_t bytes() const { return bytes_; }

 private:
  struct Index {
    IndexFunction function;
    // By the hashes of their values, which take a fifth of what the values themselves and a table for each would.
    absl::btree_set<std::pair<size_t, ObjectPtr>> entries;
  };
  // By their keys, which objects carry already.
  struct KeyHash {
    using is_transparent = void;
    size_t operator()(const ObjectKey& key) const { return absl::HashOf(key.ns, key.name); }
    size_t operator()(const ObjectPtr& object) const { return absl::HashOf(object->meta.ns, object->meta.name); }
  };
  struct SameKey {
    using is_transparent = void;
    bool operator()(const ObjectPtr& a, const ObjectPtr& b) const { return Same(a->meta.ns, a->meta.name, b->meta.ns, b->meta.name); }
    bool operator()(const ObjectPtr& a, const ObjectKey& b) const { return Same(a->meta.ns, a->meta.name, b.ns, b.name); }
    static bool Same(const std::string& ns_a, const std::string& a, const std::string& ns_b, const std::string& b) {
      return a == b && ns_a == ns_b;
    }
  };
  void Enter(const ObjectPtr& object);
  void Leave(const ObjectPtr& object);

  absl::flat_hash_set<ObjectPtr, KeyHash, SameKey> objects_;
  std::map<std::string, Index> indexes_;
  size_t bytes_ = 0;
};

}  // namespace fusionllm::kube
