// The folders on this machine that a job's run saves checkpoints in. Blocks on the disk, where it only reads.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lib/job/fusion_job.h"

namespace fusionllm::services {

inline constexpr absl::string_view kCheckpointPathField = "spec.checkpoint.path";

struct CheckpointFolder {
  absl::string_view field;  // of the job that says it: kCheckpointPathField or that of the copies
  std::string path;         // as of CheckpointDirectory
};

// That of the run and that of its copies; not the object stores that they are copied to.
std::vector<CheckpointFolder> CheckpointFolders(const job::FusionJob& job, const std::string& output_directory);

// FailedPrecondition for a folder in which no checkpoint could be saved for what lies there (checkpoint::CheckLatestIsNoFolder); the
// message begins with the field. A run asks before it starts anything, not after hours with its first checkpoint.
absl::Status CheckCheckpointFolders(const job::FusionJob& job, const std::string& output_directory);

}  // namespace fusionllm::services
