// What the journal of a broker that died says, held against what is on disk. Blocking; holds no state.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "lib/broker/run_state.h"
#include "services/broker/journal.h"
#include "services/broker/run_log.h"

namespace fusionllm::services {

// Checkpoints that were committed by a broker that died before it could note so: all their shards are in the journal, and a whole
// checkpoint with the files of exactly these is in `directory`. That nothing is staged proves nothing: a commit that failed removes it as
// well. Takes their shards and those of earlier steps out of `past`, makes the newest the start of the run unless the journal has a newer
// one, and returns steps and folders.
std::map<int64_t, std::string> RecoverCommitted(const std::string& directory, JournalState& past, broker::RunOptions& options);

// Of these, what their committer had no time to say. Reported first, as with steps: a broker that dies in between reports it again, and not
// never. What is not noted the next broker would take for what was just saved, however far the run has come. Errors: the journal's.
absl::Status LogAndRecord(const std::map<int64_t, std::string>& taken_up, RunLog& log, Journal& journal);

}  // namespace fusionllm::services
