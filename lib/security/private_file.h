// Small files that only their owner may read. Blocks on the file system; errors name the path.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace fusionllm::security {

// Makes the folder, mode 0700, with the folders above it. One that exists stays as it is, but must not be writable by others
// (FailedPrecondition): they could put their own files in place of ours.
absl::Status MakePrivateFolder(const std::string& path);

// Replaces the file, mode 0600, whole or not at all: written aside, synced, renamed.
absl::Status WritePrivateFile(const std::string& path, absl::string_view bytes);

// NotFound when missing; InvalidArgument when it is empty, longer than max_bytes or no plain file; Unavailable when it cannot be read.
absl::StatusOr<std::string> ReadSmallFile(const std::string& path, size_t max_bytes);

}  // namespace fusionllm::security
