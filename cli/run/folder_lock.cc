#include "cli/run/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "lib/base/exit_code.h"
#include "lib/base/output_file.h"

namespace fusionllm::cli {

absl::StatusOr<FolderLock> FolderLock::Take(const std::string& path, absl::string_view remedy) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return base::OfNamedFile(base::FileError(error.value(), "make the folder", path));
  const std::string file = path + "/.lock";
  while (true) {
    const int fd = open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) return base::OfNamedFile(base::FileError(errno, "write to", path));
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      close(fd);
      return absl::FailedPreconditionError(absl::StrCat("another run is using ", path, "; ", remedy));
    }
    // Who held it may have removed the file between our opening and locking it.
    struct stat held = {}, there = {};
    if (fstat(fd, &held) == 0 && stat(file.c_str(), &there) == 0 && held.st_ino == there.st_ino) return FolderLock(file, fd);
    close(fd);
  }
}

FolderLock::~FolderLock() {
  if (fd_ < 0) return;
  unlink(file_.c_str());
  close(fd_);
}

}  // namespace fusionllm::cli
