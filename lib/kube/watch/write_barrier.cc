#include "lib/kube/watch/write_barrier.h"

#include <utility>

#include "lib/kube/api/resource_version.h"

namespace fusionllm::kube {
namespace {

constexpr size_t kKeptExpected = 64;

}  // namespace

void WriteBarrier::Wrote(const ObjectKey& key, const std::string& resource_version) { Expect(key, {.version = resource_version}); }

void WriteBarrier::Deleted(const ObjectKey& key, const std::string& uid) { Expect(key, {.gone = uid}); }

void WriteBarrier::Expect(const ObjectKey& key, Expected expected) {
  expected.until = clock_.Monotonic() + timeout_;
  const base::MutexLock lock(mutex_);
  Expected& place = expected_[key];
  // Answers may be noted in another order than the server gave them.
  if (!expected.version.empty() && CompareResourceVersions(place.version, expected.version).value_or(-1) > 0)
    expected.version = place.version;
  place = std::move(expected);
}

bool WriteBarrier::IsSeen(const ObjectKey& key, const Expected& expected) const {
  if (clock_.Monotonic() >= expected.until) return true;
  if (!expected.gone.empty()) {
    const ObjectPtr object = informer_.Get(key);
    return object == nullptr || object->meta.uid != expected.gone;
  }
  // Versions of one kind are one sequence: a cache that is beyond it has seen the write, even if the object is gone again.
  return CompareResourceVersions(informer_.resource_version(), expected.version).value_or(-1) >= 0;
}

bool WriteBarrier::Seen(const ObjectKey& key) {
  return AllSeen([&](const ObjectKey& of) { return of == key; });
}

bool WriteBarrier::AllSeen(const std::function<bool(const ObjectKey& key)>& matters) {
  const base::MutexLock lock(mutex_);
  bool all = true;
  for (auto at = expected_.begin(); at != expected_.end();) {
    if (!matters(at->first)) {
      ++at;
    } else if (IsSeen(at->first, at->second)) {
      expected_.erase(at++);
    } else {
      all = false;
      ++at;
    }
  }
  // After a burst it would keep the room of all that was written.
  if (expected_.empty() && expected_.capacity() > kKeptExpected) expected_ = decltype(expected_)();
  return all;
}

}  // namespace fusionllm::kube
