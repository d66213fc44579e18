// How long the operator waits for the first lists of its hub.
#pragma once

#include <functional>
#include <initializer_list>
#include <stop_token>

#include "absl/time/time.h"
#include "lib/kube/clock.h"

namespace fusionllm::op::manager {

// A process that cannot list its hub is of no use, and says more about it when it ends and is started again than when it waits.
inline constexpr absl::Duration kSyncTimeout = absl::Minutes(2);

// Whether a cache is complete; blocks for that, for as long as the caller says at most.
using WaitForSync = std::function<bool(absl::Duration timeout)>;

// Blocks until all are complete. False: not within kSyncTimeout, which is one for all of them, or asked to stop.
bool AwaitFirstSync(std::initializer_list<WaitForSync> caches, const std::stop_token& stop, kube::Clock& clock);

}  // namespace fusionllm::op::manager
