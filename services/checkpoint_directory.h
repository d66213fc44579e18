// Where a job's checkpoints are.
#pragma once

#include <filesystem>
#include <string>

#include "lib/base/object_uri.h"

namespace fusionllm::services {

// In the folder of a run whose checkpoints go to an object store.
inline constexpr char kLocalCheckpoints[] = "checkpoints";
// Below the folder of a run: what was fetched from object stores.
inline constexpr char kFetchedObjects[] = "objects";

// In the folder of checkpoints, or of a run without any, while its broker lives: see services/broker/shared_folder.h.
inline constexpr char kSharedMark[] = ".shared-folder";

// `path`: spec.checkpoint.path or another of its kind; a relative one lies in the folder of the run. "kept/" is "kept", so that paths made
// from it read well. Of a URI: the folder here that is copied there.
inline std::string CheckpointDirectory(const std::string& path, const std::string& output_directory) {
  const std::filesystem::path below = base::IsUri(path) ? kLocalCheckpoints : path;
  const std::filesystem::path whole = (std::filesystem::path(output_directory) / below).lexically_normal();
  return whole.has_filename() ? whole.string() : whole.parent_path().string();
}

}  // namespace fusionllm::services
