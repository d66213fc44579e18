// The checkpoints of a folder: listing, choosing, removing old ones.
//
// All functions block on the disk and hold no state.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/checkpoint/reader.h"

namespace fusionllm::checkpoint {

struct CheckpointInfo {
  std::string path;
  int64_t step = 0;
  int64_t sequence = 0;  // of its manifest, also of one in a newer format that says it; 0 when that cannot be read
  int64_t bytes = 0;     // of the files in the manifest
  bool is_latest = false;
  std::string problem;        // empty: manifest and file sizes are in order (checksums are not looked at)
  bool newer_format = false;  // that is the problem: a later release made it, and it may well be whole
  std::string other_sites;    // DescribeFilesInOtherSites (reader.h); empty: all files are in the folder
};

// The checkpoints of `root`, newest (made last) first. Empty when there is no such folder. Errors: those of base::FileError when it cannot
// be listed, or its link `latest` is there and cannot be read.
absl::StatusOr<std::vector<CheckpointInfo>> ListCheckpoints(const std::string& root);

// Whether runs can save in `root`, there or not: FailedPrecondition where ROOT/latest is a folder, as copies that follow links leave it. No
// link can take its place, and it stays at the step it has. The message names it and what to do.
absl::Status CheckLatestIsNoFolder(const std::string& root);

struct SkippedCheckpoint {
  std::string path;
  std::string reason;
  int64_t sequence = 0;       // as CheckpointInfo's
  bool newer_format = false;  // likewise
};
struct NewestCheckpoint {
  std::optional<std::string> path;         // nullopt: none is whole
  std::vector<SkippedCheckpoint> skipped;  // newer ones, or those that may be, that are not, with the reason
};

// Which checkpoints count.
struct CheckpointFilter {
  int64_t first_sequence = 0;      // none before it
  std::set<std::string> unusable;  // paths: not these, for a reason of which there is nothing to be seen here
};

// Finds the newest checkpoint that VerifyToRestore (reader.h) finds whole, but for files in other sites. Reads the files of those it tries.
absl::StatusOr<NewestCheckpoint> FindLatestComplete(const std::string& root, const CheckpointFilter& eligible = {},
                                                    DamagedCopies copies = DamagedCopies::kRemove);

// What the checkpoints of `root`, also those set aside, have in sites: the folders there by site. Errors: those of LoadManifest, for which
// one that is damaged, missing or of a later release is enough, as what it names is not known; of base::FileError when `root` cannot be
// listed.
absl::StatusOr<std::map<std::string, std::set<std::string>>> SiteFoldersOf(const std::string& root);

// Removes all but the `keep` newest whole checkpoints; 0 keeps all. Those of a sequence below `first_sequence` neither count nor go. Broken
// ones are left for the user to look at. One that a reader holds open is skipped and goes next time. A checkpoint disappears by a rename
// first, so it is never seen half removed.
absl::Status PruneCheckpoints(const std::string& root, int64_t keep, int64_t first_sequence = 0);

}  // namespace fusionllm::checkpoint
