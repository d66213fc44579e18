// The memory that malloc() keeps: as few arenas as do, and what is free in them goes back to the system.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lib/kube/clock.h"

namespace fusionllm::op {

// First of all: begins the program anew, with the environment that WithoutThreadCaches() says, unless it has that already. glibc reads it
// when a program begins and at no other time. Each thread keeps what it has freed for itself, and of a hundred that mostly wait that is 5
// MiB with 10,000 Pods, which nobody else gets and malloc_trim() does not see. Goes on with them where the program cannot begin anew.
void LeaveThreadCaches(char** argv);
// $GLIBC_TUNABLES, of which `present` is there, so that threads keep nothing; nothing: that is decided already.
std::optional<std::string> WithoutThreadCaches(absl::string_view present);

// Before the first thread begins. A hundred threads, most of which wait for a watch, would have arenas of their own to waste: with 10,000
// Pods and two cores 77 MiB are resident with glibc's default of eight arenas a core, 64 MiB with two. What is large is given back at once.
void LimitHeap();

// A burst of jobs, a list or a scrape leaves whole pages free between what stays, which malloc() keeps for ever. Thread-safe.
void GiveBackFreeMemory();

// So long may what a burst has left stay. Every five seconds was no better, neither at the most nor at rest (docs/results/operator.md):
// while jobs begin what is resident is in use, and little of it free.
inline constexpr absl::Duration kGiveBackEvery = absl::Minutes(1);

// A thread that gives back every kGiveBackEvery, from the beginning to the end of this.
class HeapKeeper {
 public:
  // `clock` must outlive it.
  explicit HeapKeeper(kube::Clock& clock, std::function<void()> give_back = GiveBackFreeMemory);

 private:
  std::jthread thread_;
};

}  // namespace fusionllm::op
