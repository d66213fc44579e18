#include "operator/process/heap.h"

#include <malloc.h>

#include <stop_token>
#include <utility>

namespace fusionllm::op {

void LimitHeap() {
  mallopt(M_ARENA_MAX, 2);
  mallopt(M_MMAP_THRESHOLD, 128 << 10);
}

void GiveBackFreeMemory() { (void)malloc_trim(0); }

HeapKeeper::HeapKeeper(kube::Clock& clock, std::function<void()> give_back)
    : thread_([&clock, give_back = std::move(give_back)](const std::stop_token& stop) {
        while (clock.WaitFor(kGiveBackEvery, stop)) give_back();
      }) {}

}  // namespace fusionllm::op
