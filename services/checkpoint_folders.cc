#include "services/checkpoint_folders.h"

#include "absl/strings/str_cat.h"
#include "lib/base/object_uri.h"
#include "lib/checkpoint/catalog.h"
#include "services/checkpoint_directory.h"

namespace fusionllm::services {

std::vector<CheckpointFolder> CheckpointFolders(const job::FusionJob& job, const std::string& output_directory) {
  std::vector<CheckpointFolder> folders;
  if (!job.spec.checkpoint.has_value()) return folders;
  const job::Checkpoint& checkpoint = *job.spec.checkpoint;
  folders.push_back({kCheckpointPathField, CheckpointDirectory(checkpoint.path, output_directory)});
  if (checkpoint.replica.has_value() && !base::IsUri(checkpoint.replica->path)) {
    folders.push_back({"spec.checkpoint.replica.path", CheckpointDirectory(checkpoint.replica->path, output_directory)});
  }
  return folders;
}

absl::Status CheckCheckpointFolders(const job::FusionJob& job, const std::string& output_directory) {
  for (const CheckpointFolder& folder : CheckpointFolders(job, output_directory)) {
    const absl::Status status = checkpoint::CheckLatestIsNoFolder(folder.path);
    if (!status.ok()) return absl::Status(status.code(), absl::StrCat(folder.field, ": ", status.message()));
  }
  return absl::OkStatus();
}

}  // namespace fusionllm::services
