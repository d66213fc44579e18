// Saving a checkpoint in two phases, by any number of processes that share a file system.
//
//   1. every stage:   WriteShard(root, step, stage, stages, tensors) -> its files, sent to the committer
//   2. one committer: CommitCheckpoint(root, manifest with all files, keep)      or AbandonCheckpoint(root, step) when a stage failed
//
// All files go to a staging folder and are synced before they count; a rename makes the checkpoint appear whole. A crash at any point
// leaves earlier checkpoints as they were and at most a staging folder, which CleanStaging removes at the next start. All functions block
// on the disk (fsync included) and hold no state; two committers must not work on one root at a time.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/checkpoint/manifest.h"
#include "lib/checkpoint/safetensors.h"

namespace fusionllm::checkpoint {

// What one stage owns; each name in exactly one stage. Views need to live only during the call. An empty kind writes no file, but for the
// model, whose shards are numbered through.
struct ShardContents {
  std::vector<NamedTensor> model;
  std::vector<NamedTensor> optimizer;
  std::vector<NamedTensor> residuals;
};

// The files of one stage, laid out over the tensors of `contents`, which must outlive them. Errors: InvalidArgument as below.
struct ShardFileImage {
  std::string name;
  SafetensorsImage image;
};
absl::StatusOr<std::vector<ShardFileImage>> LayOutShard(int64_t step, int stage, int stages, const ShardContents& contents);

// Writes the files of stage `stage` of `stages` (from 0). Creates `root` and the staging folder as needed; files of an earlier attempt at
// the same step are replaced. On an error the stage's files are removed, and the staging folder too if no one else has written to it.
// Errors: InvalidArgument (stage numbers, tensor names), ResourceExhausted for a full disk, others of base::FileError; messages name the
// path.
absl::StatusOr<std::vector<FileEntry>> WriteShard(const std::string& root, int64_t step, int stage, int stages,
                                                  const ShardContents& contents);

// Likewise, into `folder`, which is there. On an error it has none of the files.
absl::StatusOr<std::vector<FileEntry>> WriteShardFiles(const std::string& folder, int64_t step, int stage, int stages,
                                                       const ShardContents& contents);

struct CommittedCheckpoint {
  std::string path;
  // ROOT/step-NNNNNN.earlier-K, where another run's checkpoint of that step is now, or a folder of that step without a manifest that can be
  // read; empty: there was none.
  std::string set_aside;
};

// Makes the staged checkpoint of manifest.step appear as ROOT/step-NNNNNN and returns that path: checks that the files are there with their
// sizes, removes others, writes index and manifest, syncs, renames, points `latest` to it and removes all but the `keep` newest (0: keeps
// all; never the one just made nor one that a reader holds open, see reader.h). Files that lie in sites are taken at the word of who wrote
// them there, tensors included. Newest means made last, whatever the step. Those of a
// sequence below manifest.first_sequence are another run's: they stay, and one of the same step is set aside, as is one whose manifest
// cannot be read, where one of this run is replaced. manifest.files come from WriteShard; the index and manifest.sequence are added here.
// The sequence is never below first_sequence, so that a folder which was lost does not begin again at 1.
// On an error before the rename the staging folder is removed. Errors: as above, and FailedPrecondition for missing or wrong files or a
// tensor in two shards. An error after the rename (updating `latest`, removing old ones) is returned, but the checkpoint is there.
absl::StatusOr<CommittedCheckpoint> CommitCheckpoint(const std::string& root, Manifest manifest, int64_t keep);

// Makes files that were staged for manifest.step, whole and compared with their checksums by the caller, appear as ROOT/step-NNNNNN with
// this very manifest, and `latest` point to it. Whatever is there of that step is set aside. Returns the path. Errors: as above.
absl::StatusOr<std::string> InstallCheckpoint(const std::string& root, const Manifest& manifest);

// Removes what has been staged for `step`. OK when there is nothing.
absl::Status AbandonCheckpoint(const std::string& root, int64_t step);

// Removes what a crash has left and returns the names. For the start of a run, when no one else writes to `root`. OK when there is no root.
absl::StatusOr<std::vector<std::string>> CleanStaging(const std::string& root);

}  // namespace fusionllm::checkpoint
