#include "lib/kernels/cpu/worker_pool.h"

#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lib/kernels/cpu/onednn.h"

namespace fusionllm::kernels::cpu {

absl::StatusOr<std::shared_ptr<WorkerPool>> WorkerPool::Create(int threads, StartThread start) {
  const std::shared_ptr<WorkerPool> pool(new WorkerPool);
  pool->workers_.reserve(static_cast<size_t>(threads - 1));
  for (int slot = 1; slot < threads; ++slot) {
    try {
      pool->workers_.push_back(start([pool = pool.get(), slot] { pool->Work(slot); }));
    } catch (const std::system_error& error) {
      return absl::ResourceExhaustedError(
          absl::StrCat("cannot start the ", threads, " threads of the kernels (executors.threads of a job, ",
                       "threads of a topology's device), only ", pool->threads(), ": ", error.code().message()));
    }
  }
  return pool;
}

absl::StatusOr<std::shared_ptr<WorkerPool>> WorkerPool::Create(int threads) {
  return Create(threads, [](std::function<void()> work) { return std::thread(std::move(work)); });
}

WorkerPool::~WorkerPool() {
  {
    const base::MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void WorkerPool::Run(int64_t chunks, Body body) {
  const SingleThreadedOneDnn single_threaded;
  if (workers_.empty() || chunks <= 1 || !busy_.try_lock()) {
    for (int64_t chunk = 0; chunk < chunks; ++chunk) body(chunk, 0);
    return;
  }
  const base::MutexLock holder(busy_, std::adopt_lock);
  {
    const base::MutexLock lock(mutex_);
    body_ = &body;
    chunks_ = chunks;
    next_.store(0, std::memory_order_relaxed);
    working_ = static_cast<int>(workers_.size());
    ++round_;
  }
  wake_.notify_all();
  for (int64_t chunk = next_.fetch_add(1); chunk < chunks; chunk = next_.fetch_add(1)) body(chunk, 0);
  base::UniqueLock lock(mutex_);
  done_.wait(lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return working_ == 0; });
}

void WorkerPool::Work(int slot) {
  const SingleThreadedOneDnn single_threaded;
  uint64_t seen = 0;
  base::UniqueLock lock(mutex_);
  while (true) {
    wake_.wait(lock, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_ || round_ != seen; });
    if (stopping_) return;
    seen = round_;
    const Body& body = *body_;
    const int64_t chunks = chunks_;
    lock.unlock();
    for (int64_t chunk = next_.fetch_add(1); chunk < chunks; chunk = next_.fetch_add(1)) body(chunk, slot);
    lock.lock();
    if (--working_ == 0) done_.notify_one();
  }
}

}  // namespace fusionllm::kernels::cpu
