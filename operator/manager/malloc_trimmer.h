// The memory that malloc() keeps: as few arenas as do, and what is free in them goes back to the system.
#pragma once

#include <functional>
#include <thread>

#include "absl/time/time.h"
#include "lib/kube/clock.h"

namespace fusionllm::op::manager {

// Before the first thread begins. A hundred threads, most of which wait for a watch, would have arenas of their own to waste: with 10,000
// Pods and two cores 77 MiB are resident with glibc's default of eight arenas a core, 64 MiB with two. What is large is given back at once.
void LimitMallocArenas();

// A burst of jobs, a list or a scrape leaves whole pages free between what stays, which malloc() keeps for ever. Thread-safe.
void TrimMalloc();

// So long may what a burst has left stay. Every five seconds was no better, neither at the most nor at rest (docs/results/operator.md):
// while jobs begin what is resident is in use, and little of it free.
inline constexpr absl::Duration kTrimInterval = absl::Minutes(1);

// A thread that trims every kTrimInterval, from the beginning to the end of this.
class MallocTrimmer {
 public:
  // `clock` must outlive it.
  explicit MallocTrimmer(kube::Clock& clock, std::function<void()> trim = TrimMalloc);

 private:
  std::jthread thread_;
};

}  // namespace fusionllm::op::manager
