// A checkpoint's parameters as one .safetensors file, for other tools.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "lib/checkpoint/hashed_file.h"

namespace fusionllm::checkpoint {

// Copies all parameters (no optimizer state, no residuals) of `path`, anything that CheckpointReader::Open takes, to the file `out`, with
// their names and dtypes. Written aside and renamed, so that `out` is whole or as it was. Memory use is constant. Blocks.
// Errors: those of CheckpointReader and base/output_file.h; InvalidArgument for an `out` that, links followed, lies in the folder of a
// checkpoint, is one of the files that are read or is no regular file.
absl::StatusOr<WrittenFile> ExportModel(const std::string& path, const std::string& out);

}  // namespace fusionllm::checkpoint
