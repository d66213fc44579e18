#include "lib/kube/testing/fake_store.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace fusionllm::kube::testing {
namespace {

constexpr size_t kLongestHistory = 200'000;

}  // namespace

SharedJson FakeStore::Find(const std::string& collection, const ObjectKey& key) const {
  const ObjectMap& all = All(collection);
  const auto found = all.find(key);
  return found == all.end() ? nullptr : found->second;
}

const ObjectMap& FakeStore::All(const std::string& collection) const {
  static const ObjectMap* const kNone = new ObjectMap;
  const auto found = objects_.find(collection);
  return found == objects_.end() ? *kNone : found->second;
}

ObjectMap FakeStore::At(const std::string& collection, int64_t version) const {
  ObjectMap objects = All(collection);
  for (auto change = history_.rbegin(); change != history_.rend() && change->version > version; ++change) {
    if (change->collection != collection) continue;
    if (change->before == nullptr) {
      objects.erase(change->key);
    } else {
      objects[change->key] = change->before;
    }
  }
  return objects;
}

SharedJson FakeStore::Put(const std::string& collection, const ObjectKey& key, Json object) {
  object["metadata"]["resourceVersion"] = absl::StrCat(++version_);
  auto stored = std::make_shared<const Json>(std::move(object));
  SharedJson& place = objects_[collection][key];
  history_.push_back({version_, collection, key, place, stored, nullptr});
  place = stored;
  if (history_.size() > kLongestHistory) {
    compacted_ = history_.front().version;
    history_.pop_front();
  }
  return stored;
}

SharedJson FakeStore::Remove(const std::string& collection, const ObjectKey& key) {
  const SharedJson before = Find(collection, key);
  Json last = *before;
  last["metadata"]["resourceVersion"] = absl::StrCat(++version_);
  auto shared = std::make_shared<const Json>(std::move(last));
  history_.push_back({version_, collection, key, before, nullptr, shared});
  objects_[collection].erase(key);
  return shared;
}

void FakeStore::Compact() {
  // Even the state of right now gets an older version than the next read: one who holds a version from before must list again.
  compacted_ = ++version_;
  history_.clear();
}

}  // namespace fusionllm::kube::testing
