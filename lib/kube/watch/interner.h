// Equal values once: thousands of cached objects say the same of themselves, and need not each keep it.
//
// Values are immutable, hashable and comparable. One that is not held any more is forgotten some time later, so a pool is never more than
// about twice as large as what is held. Thread-safe.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/hash/hash.h"
#include "lib/base/mutex.h"

namespace fusionllm::kube {

template <class T>
class Interner {
 public:
  using Pointer = std::shared_ptr<const T>;

  // `value`, or what was given for an equal one before. Never null.
  Pointer Share(T value) {
    const base::MutexLock lock(mutex_);
    if (const auto at = values_.find(value); at != values_.end()) return *at;
    if (values_.size() >= sweep_at_) {
      absl::erase_if(values_, [](const Pointer& held) { return held.use_count() == 1; });
      sweep_at_ = std::max(kSmall, 2 * values_.size());
    }
    return *values_.insert(std::make_shared<const T>(std::move(value))).first;
  }

  // Those that are not held included, if they are not forgotten yet.
  size_t size() const {
    const base::MutexLock lock(mutex_);
    return values_.size();
  }

 private:
  static constexpr size_t kSmall = 64;

  static const T& ValueOf(const T& value) { return value; }
  static const T& ValueOf(const Pointer& held) { return *held; }
  struct Hash {
    using is_transparent = void;
    template <class V>
    size_t operator()(const V& value) const {
      return absl::HashOf(ValueOf(value));
    }
  };
  struct Equal {
    using is_transparent = void;
    template <class A, class B>
    bool operator()(const A& a, const B& b) const {
      return ValueOf(a) == ValueOf(b);
    }
  };

  mutable base::Mutex mutex_;
  absl::flat_hash_set<Pointer, Hash, Equal> values_ ABSL_GUARDED_BY(mutex_);
  size_t sweep_at_ ABSL_GUARDED_BY(mutex_) = kSmall;
};

}  // namespace fusionllm::kube
