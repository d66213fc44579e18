// Where a job's run stands, from what its brokers tell and have left behind.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "operator/cache/member.h"
#include "operator/lifecycle/observation.h"

namespace fusionllm::op::controller {

// What the page of the broker at this address says; nothing: not known yet. Must not block.
using FetchProgress = std::function<std::optional<lifecycle::Progress>(const std::string& address)>;

// Of the broker of this attempt: the report that it has left, or its page.
std::optional<lifecycle::Progress> ProgressOf(const lifecycle::Observation& seen, int64_t attempt, const FetchProgress& ask);

// The same of the attempt of `persisted`, to be reported: while it has no broker's pod, any more or yet, the last word of its broker, or,
// until it trains, of the one before.
// Attempts are counted as soon as they are decided on, when the former broker may be saving its last checkpoint; and its pod may be gone by
// the time that somebody looks. `left`: Member::LastReportOf of the hub.
std::optional<lifecycle::Progress> NewestProgress(const lifecycle::Observation& seen, const lifecycle::PersistedState& persisted,
                                                  const FetchProgress& ask, const std::optional<cache::BrokerReport>& left);

}  // namespace fusionllm::op::controller
