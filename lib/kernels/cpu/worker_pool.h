// Threads that share the chunks of one loop.
//
// Chunk boundaries are the caller's and depend on shapes alone, so results have the same bits for any number of threads. Run may be called
// from several threads at once: while the workers serve one caller, the others work through their chunks alone. Workers keep oneDNN
// single-threaded (its OpenMP team would split sums by thread count).
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "lib/base/mutex.h"

namespace fusionllm::kernels::cpu {

class WorkerPool {
 public:
  // body(chunk, slot): slot in [0, threads) names the thread's share of the workspace; no two chunks run in one slot at the same time.
  using Body = absl::FunctionRef<void(int64_t chunk, int slot)>;

  using StartThread = absl::FunctionRef<std::thread(std::function<void()>)>;

  // `threads` >= 1, the callers' own included. `start` may throw std::system_error, as std::thread does. Errors: ResourceExhausted when not
  // all can be started; none is left then.
  static absl::StatusOr<std::shared_ptr<WorkerPool>> Create(int threads, StartThread start);
  static absl::StatusOr<std::shared_ptr<WorkerPool>> Create(int threads);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Runs body for every chunk in [0, chunks); the caller helps (slot 0) and returns when all are done.
  void Run(int64_t chunks, Body body);

 private:
  WorkerPool() = default;
  void Work(int slot);

  base::Mutex busy_;  // held by the caller whom the workers serve

  base::Mutex mutex_;
  std::condition_variable wake_, done_;
  const Body* body_ ABSL_GUARDED_BY(mutex_) = nullptr;
  int64_t chunks_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t round_ ABSL_GUARDED_BY(mutex_) = 0;
  int working_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;

  std::atomic<int64_t> next_{0};
  std::vector<std::thread> workers_;
};

// How many chunks of `chunk` cover `count`.
inline int64_t ChunkCount(int64_t count, int64_t chunk) { return (count + chunk - 1) / chunk; }

}  // namespace fusionllm::kernels::cpu
