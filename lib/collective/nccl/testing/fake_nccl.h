// A library with NCCL's functions, for machines without it or without cards: replicas are threads of one process, and their tensors are
// copied by a function of the test's, which knows where they live. As in NCCL, a communicator is ready when all have come, a call is done
// when all have made it, and until then both are "in progress"; ranks whose calls do not fit each other stay so forever. A test finds the
// controls by the symbol fakeNcclControls.
#pragma once

#include <atomic>
#include <cstddef>
#include <string>
#include <vector>

#include "lib/base/mutex.h"

namespace fusionllm::collective::testing {

struct FakeNcclControls {
  // Between a device's memory and the host's, either way, in the order of the stream; waits. Called by one thread at a time.
  void (*copy)(void* to, const void* from, size_t bytes, void* stream) = nullptr;
  std::atomic<int> version = 22703;
  std::atomic<int> init_result = 0;   // of ncclCommInitRankConfig, where it is not 0
  std::atomic<int> call_result = 0;   // likewise, of sums and broadcasts
  std::atomic<int> async_result = 0;  // of what goes on behind the scenes, from now on
  std::atomic<int> alive = 0;         // communicators that were made and neither destroyed nor aborted
  std::atomic<int> aborted = 0;

  base::Mutex mutex;
  std::vector<std::string> calls ABSL_GUARDED_BY(mutex);  // "AllReduce float32[5]", "GroupEnd", ...: of all ranks

  void Reset() {
    version = 22703;
    init_result = call_result = async_result = aborted = 0;
    const base::MutexLock lock(mutex);
    calls.clear();
  }
};

}  // namespace fusionllm::collective::testing
