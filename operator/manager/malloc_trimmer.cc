#include "operator/manager/malloc_trimmer.h"

#include <malloc.h>

#include <stop_token>
#include <utility>

namespace fusionllm::op::manager {

void LimitMallocArenas() {
  mallopt(M_ARENA_MAX, 2);
  mallopt(M_MMAP_THRESHOLD, 128 << 10);
}

void TrimMalloc() { (void)malloc_trim(0); }

MallocTrimmer::MallocTrimmer(kube::Clock& clock, std::function<void()> trim)
    : thread_([&clock, trim = std::move(trim)](const std::stop_token& stop) {
        while (clock.WaitFor(kTrimInterval, stop)) trim();
      }) {}

}  // namespace fusionllm::op::manager
