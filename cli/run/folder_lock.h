// A folder that one run alone uses. Blocks on the disk.
#pragma once

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace fusionllm::cli {

// Makes the folder and holds it, by a lock on the file .lock in it, which goes with this object.
class FolderLock {
 public:
  // `remedy` ends the sentence that says who else holds the folder: "name another folder with --output". Errors: InvalidArgument when it
  // cannot be made or written to, ResourceExhausted when the disk is full, FailedPrecondition when another run holds it.
  static absl::StatusOr<FolderLock> Acquire(const std::string& path, absl::string_view remedy);
  // Whether Acquire would succeed, as far as can be known without making or writing anything. Errors: as Acquire.
  static absl::Status Check(const std::string& path, absl::string_view remedy);
  // Whether the folder is there and can be written to, or can be made, as far as can be known without making or writing anything. Errors:
  // as
  // Acquire, but for who holds it.
  static absl::Status CheckCanWrite(const std::string& path);
  // By another process or object, now.
  static bool IsHeld(const std::string& path);
  FolderLock(FolderLock&& other) noexcept : file_(std::move(other.file_)), fd_(std::exchange(other.fd_, -1)) {}
  FolderLock& operator=(FolderLock&& other) noexcept {
    std::swap(file_, other.file_);
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~FolderLock();

 private:
  FolderLock(std::string file, int fd) : file_(std::move(file)), fd_(fd) {}

  std::string file_;
  int fd_ = -1;
};

}  // namespace fusionllm::cli
