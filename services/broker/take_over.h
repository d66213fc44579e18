// What the journal of a broker that died says, held against what is on disk. Blocking; holds no state.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "lib/broker/run_state.h"
#include "services/broker/journal.h"

namespace fusionllm::services {

// Checkpoints that were committed by a broker that died before it could note so: all their shards are in the journal, and a whole
// checkpoint with the files of exactly these is in `directory`. That nothing is staged proves nothing: a commit that failed removes it as
// well. Takes their shards out of `past`, makes the newest the start of the run, and returns steps and folders.
std::map<int64_t, std::string> TakeUpCommitted(const std::string& directory, JournalState& past, broker::RunOptions& options);

}  // namespace fusionllm::services
