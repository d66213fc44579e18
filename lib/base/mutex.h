// Locks that clang's thread-safety analysis sees (tools/check-thread-safety.sh, docs/design/adr/0046-locks-are-annotated.md).
//
// The classes are std::mutex, std::lock_guard and std::unique_lock with annotations, and cost what these cost. What a mutex guards says so:
//
//   base::Mutex mutex_;
//   int open_ ABSL_GUARDED_BY(mutex_) = 0;
//   void Close() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
//
// A lambda is a function of its own to the analysis. One that runs under the lock says so as well:
//
//   changed_.wait(lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return open_ == 0; });
#pragma once

#include <mutex>

#include "absl/base/thread_annotations.h"

namespace fusionllm::base {

class ABSL_LOCKABLE Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  // The names of the standard library: std::condition_variable_any and std::scoped_lock take it.
  void lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() ABSL_NO_THREAD_SAFETY_ANALYSIS { mutex_.lock(); }
  void unlock() ABSL_UNLOCK_FUNCTION() ABSL_NO_THREAD_SAFETY_ANALYSIS { mutex_.unlock(); }
  bool try_lock() ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true) ABSL_NO_THREAD_SAFETY_ANALYSIS { return mutex_.try_lock(); }

 private:
  friend class UniqueLock;
  std::mutex mutex_;  // tidy-allow: raw-mutex because this is what wraps it
};

// Holds a mutex for its scope.
class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(mutex) { mutex_.lock(); }
  // Takes over a lock that the caller holds, from try_lock().
  MutexLock(Mutex& mutex, std::adopt_lock_t) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) : mutex_(mutex) {}
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// As MutexLock, and may be unlocked and locked again in between. It is a std::unique_lock, on which std::condition_variable waits. A
// function that is handed one as std::unique_lock<std::mutex>& may unlock it: the analysis takes the mutex for held all the same, as it
// does in a wait.
class ABSL_SCOPED_LOCKABLE UniqueLock : public std::unique_lock<std::mutex> {
 public:
  explicit UniqueLock(Mutex& mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : std::unique_lock<std::mutex>(mutex.mutex_) {}
  ~UniqueLock() ABSL_UNLOCK_FUNCTION() = default;
  UniqueLock(const UniqueLock&) = delete;
  UniqueLock& operator=(const UniqueLock&) = delete;

  void lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() ABSL_NO_THREAD_SAFETY_ANALYSIS { std::unique_lock<std::mutex>::lock(); }
  void unlock() ABSL_UNLOCK_FUNCTION() ABSL_NO_THREAD_SAFETY_ANALYSIS { std::unique_lock<std::mutex>::unlock(); }
};

}  // namespace fusionllm::base
