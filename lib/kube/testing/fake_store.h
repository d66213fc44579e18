// What a fake API server remembers: objects, and what has changed since when. Not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "lib/kube/api/resource.h"

namespace fusionllm::kube::testing {

using Json = nlohmann::json;
using SharedJson = std::shared_ptr<const Json>;
using ObjectMap = std::map<ObjectKey, SharedJson>;

struct Change {
  int64_t version = 0;
  std::string collection;  // Resource::Name()
  ObjectKey key;
  SharedJson before;  // null: added
  SharedJson after;   // null: deleted
  SharedJson last;    // of a deletion: as it was, with the version of the deletion
};

class FakeStore {
 public:
  int64_t version() const { return version_; }
  // History up to here is forgotten.
  int64_t compacted() const { return compacted_; }
  const std::deque<Change>& history() const { return history_; }

  // Null if there is none.
  SharedJson Find(const std::string& collection, const ObjectKey& key) const;
  const ObjectMap& All(const std::string& collection) const;
  // As it was at that version, which must not be before compacted().
  ObjectMap At(const std::string& collection, int64_t version) const;
  std::map<std::string, ObjectMap>& collections() { return objects_; }

  // Stores it under the next version, which is written into it.
  SharedJson Put(const std::string& collection, const ObjectKey& key, Json object);
  // The object with the version of its deletion.
  SharedJson Remove(const std::string& collection, const ObjectKey& key);
  // As when the server's storage compacts.
  void Compact();

 private:
  std::map<std::string, ObjectMap> objects_;
  int64_t version_ = 1000;
  int64_t compacted_ = 0;
  std::deque<Change> history_;
};

}  // namespace fusionllm::kube::testing
