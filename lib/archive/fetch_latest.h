// Which checkpoint a run goes on from, where there are copies elsewhere.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/archive/mirror_target.h"
#include "lib/checkpoint/catalog.h"

namespace fusionllm::archive {

struct LatestCheckpoint {
  std::optional<std::string> path;                     // in the folder asked for; nullopt: none is whole anywhere
  std::string from;                                    // the place that it was fetched from; empty: it was there already
  std::vector<checkpoint::SkippedCheckpoint> skipped;  // newer ones that are not whole, and places that could not be asked
};

// The newest whole checkpoint (that with the highest sequence) of the folder `root` and of `places`, the earlier of which goes first where
// they have the same; fetched to `root` where it was not. A place that cannot be asked is passed over where there is a whole checkpoint
// elsewhere. Blocks; reads the files of what is in `root`. Of checkpoints in `root` that are not eligible a copy may be fetched.
// Errors: those of a place that could not be asked, where no other has a checkpoint: to begin again at step 0 would not be what was meant;
// those of `root`, such as a full disk.
absl::StatusOr<LatestCheckpoint> FetchLatest(const std::string& root, const std::vector<MirrorTarget*>& places,
                                             const checkpoint::CheckpointFilter& eligible = {});

// The highest sequence among the newest that the places have, also where a later release made them; 0: there is none. Errors: those of a
// place that cannot be asked.
absl::StatusOr<int64_t> LatestSequence(const std::vector<MirrorTarget*>& places);

}  // namespace fusionllm::archive
