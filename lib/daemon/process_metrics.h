// What the kernel says of this process, under the names of Prometheus' own client libraries (process_*): time of the processor, memory,
// open files. Read with each scrape; on a system without /proc what is read there is absent.
#pragma once

#include "lib/metrics/registry.h"

namespace fusionllm::daemon {

// Once for a registry, near the beginning of the process: its start is taken to be now.
void AddProcessMetrics(metrics::Registry& registry);

}  // namespace fusionllm::daemon
