// Whether the operator still does what it is there for, for /healthz: a process that does not is better restarted.
#pragma once

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "lib/kube/queue/queue_metrics.h"

namespace fusionllm::op::manager {

// Every call to an API server ends within a minute or so, and the first that fails ends the work on its key: a worker that has had one key
// for this long waits for something that will never come.
inline constexpr absl::Duration kStuckAfter = absl::Minutes(10);

// Unavailable, naming queue and time, where a worker of one of `queues` has been at one key for `timeout`. Members' own queues are left
// out: what hangs there is the member, and a new process would hang as well. Thread-safe, does not block.
absl::Status CheckWorkers(const kube::QueueMetrics& queues, absl::Duration timeout = kStuckAfter);

}  // namespace fusionllm::op::manager
