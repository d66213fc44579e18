// What executors that keep shards in a folder of their site hear of the files there. Blocking; hold no state.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/broker/run_state.h"
#include "services/messages_fwd.h"

namespace fusionllm::services {

// To whom, and what.
using RetentionMessages = std::vector<std::pair<std::string, v1::BrokerMessage>>;

// Which of the shards up to `step`, of which nothing is to be saved any more, are in checkpoints of `directory`: sites remove the others.
// Empty where no executor holds shards, or where more of them may become a checkpoint yet. Errors: those of checkpoint::SiteFoldersOf; none
// may be sent anything then.
absl::StatusOr<RetentionMessages> RetentionMessagesUpTo(const broker::RunState& state, const std::string& directory, int64_t step);

// The files of `checkpoint` that lie in the executor's own site, if it holds shards there.
void AddSiteFiles(const std::string& checkpoint, const broker::Executor& executor, v1::Assign& assign);

}  // namespace fusionllm::services
