// Reading files: one open for positioned reads, and small ones whole. Reads come back as errors that name the file, never as signals,
// unlike a mapping of a file that shrinks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace fusionllm::base {

// Movable. Reads may run on several threads at once. Blocks on the file system.
class SourceFile {
 public:
  // InvalidArgument for what is no regular file, else FileError's, naming the path. A pipe is not waited for. With keep_open false
  // each read opens the file again: datasets of thousands of small files would run out of descriptors.
  static absl::StatusOr<SourceFile> Open(std::string path, bool keep_open);
  SourceFile(SourceFile&& other) noexcept;
  SourceFile& operator=(SourceFile&& other) noexcept;
  ~SourceFile();

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }  // bytes, when it was opened

  // Fills `into` from byte `offset` on. DataLoss when the file has become shorter, else FileError's; all name the file.
  absl::Status ReadAt(int64_t offset, std::span<std::byte> into) const;

 private:
  SourceFile(std::string path, int64_t size, int descriptor) : path_(std::move(path)), size_(size), descriptor_(descriptor) {}

  std::string path_;
  int64_t size_ = 0;
  int descriptor_ = -1;
};

// All bytes of a file that may have `bytes_max` of them; no more are read. Blocks. A pipe, which would be waited for as long as no process
// writes to it, is refused: paths come from jobs and from other machines. Errors: InvalidArgument for what is no regular file, or when
// there are more; else FileError's. All name the path.
absl::StatusOr<std::string> ReadSmallFile(const std::string& path, int64_t bytes_max);

// The same of what a user names on the command line, which may be a pipe.
// Errors: InvalidArgument for a folder, or when there are more; else FileError's. All name the path.
absl::StatusOr<std::string> ReadSmallInput(const std::string& path, int64_t bytes_max);

}  // namespace fusionllm::base
