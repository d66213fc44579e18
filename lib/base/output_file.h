// Files written so that they survive a crash: created, synced, put into the place of another as a whole; and the folder operations that go
// with them.
//
// All functions block on the file system. Errors are those of FileError.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/base/file_error.h"

namespace fusionllm::base {

// Replaces a file. Not thread-safe. A file that is not finished is removed by the destructor.
class OutputFile {
 public:
  static absl::StatusOr<OutputFile> Create(std::string path);
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&& other) noexcept;
  ~OutputFile();

  const std::string& path() const { return path_; }
  absl::Status Write(std::span<const std::byte> bytes);
  // Syncs the data to the disk and closes. After an error the file is removed.
  absl::Status Finish();

 private:
  OutputFile(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}
  absl::Status Fail(absl::string_view what);

  std::string path_;
  int descriptor_ = -1;
};

// Writes a small file through OutputFile.
absl::Status WriteFile(const std::string& path, absl::string_view text);

// A file that is to be put in the place of another: written to `temporary` first, so that the other is whole or as it was.
struct Replacement {
  std::string target;     // where the path leads: links stay
  std::string temporary;  // beside it; no other process has the name
};
// InvalidArgument when there is something else than a regular file at `path`, PermissionDenied when the file there is read-only.
absl::StatusOr<Replacement> PrepareReplacement(const std::string& path);
// Puts a written file into its place, with the access rights of the one before it; after an error it is removed.
absl::Status CommitReplacement(const Replacement& replacement);
// Replaces a small file by PrepareReplacement and CommitReplacement; a device or a pipe is written to. Errors name `path`; InvalidArgument
// for a folder.
absl::Status ReplaceFile(const std::string& path, absl::string_view text);

absl::Status MakeFolders(const std::string& path);
absl::Status SyncFolder(const std::string& path);
absl::Status Rename(const std::string& from, const std::string& to);
absl::Status RemoveTree(const std::string& path);

}  // namespace fusionllm::base
