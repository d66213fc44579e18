#include "cli/run/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace fusionllm::cli {

absl::StatusOr<FolderLock> FolderLock::Take(const std::string& path, absl::string_view remedy) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return absl::InvalidArgumentError(absl::StrCat("cannot make the folder ", path, ": ", error.message()));
  const int fd = open((path + "/.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return absl::InvalidArgumentError(absl::StrCat("cannot write to ", path, ": ", std::strerror(errno)));
  FolderLock lock(fd);
  if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    return absl::FailedPreconditionError(absl::StrCat("another run is using ", path, "; ", remedy));
  }
  return lock;
}

FolderLock::~FolderLock() {
  if (fd_ >= 0) close(fd_);
}

}  // namespace fusionllm::cli
