// Where a job's checkpoints are.
#pragma once

#include <filesystem>
#include <string>

namespace fusionllm::services {

// `path`: spec.checkpoint.path; a relative one lies in the folder of the run. "kept/" is "kept", so that paths made from it read well.
inline std::string CheckpointDirectory(const std::string& path, const std::string& output_directory) {
  const std::filesystem::path whole = (std::filesystem::path(output_directory) / path).lexically_normal();
  return whole.has_filename() ? whole.string() : whole.parent_path().string();
}

}  // namespace fusionllm::services
