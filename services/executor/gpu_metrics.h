// What an executor tells of its card as metrics. docs/reference/metrics.md lists them.
#pragma once

#include <memory>

#include "lib/metrics/registry.h"
#include "lib/nvml/nvml.h"

namespace fusionllm::services {

// Declares them; the card is asked in each Text(), and what it does not tell has no series. `gpu` may be null: there is none, or nothing
// to ask it by. Of a card that is lost the log tells once, and its gauges are gone; what was counted stays. Errors go into the log, too.
void AddGpuMetrics(metrics::Registry& registry, std::shared_ptr<const nvml::Gpu> gpu);

}  // namespace fusionllm::services
