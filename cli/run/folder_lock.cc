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
namespace {

constexpr char kLockFile[] = "/.lock";

absl::Status Taken(const std::string& path, absl::string_view remedy) {
  return absl::FailedPreconditionError(absl::StrCat("another run is using ", path, "; ", remedy));
}

}  // namespace

bool FolderLock::IsHeld(const std::string& path) {
  const int fd = open((path + kLockFile).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool held = flock(fd, LOCK_SH | LOCK_NB) != 0;
  close(fd);
  return held;
}

absl::Status FolderLock::Check(const std::string& path, absl::string_view remedy) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::path there = path;
  while (!fs::exists(there, error) && there.has_relative_path()) there = there.parent_path();
  const auto failed = [&](int code, absl::string_view what) { return base::OfNamedFile(base::FileError(code, what, path)); };
  if (!fs::is_directory(there, error)) return failed(ENOTDIR, "make the folder");
  if (access(there.c_str(), W_OK | X_OK) != 0) return failed(errno, there == fs::path(path) ? "write to" : "make the folder");
  return IsHeld(path) ? Taken(path, remedy) : absl::OkStatus();
}

absl::StatusOr<FolderLock> FolderLock::Take(const std::string& path, absl::string_view remedy) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return base::OfNamedFile(base::FileError(error.value(), "make the folder", path));
  const std::string file = path + kLockFile;
  while (true) {
    const int fd = open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) return base::OfNamedFile(base::FileError(errno, "write to", path));
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      close(fd);
      return Taken(path, remedy);
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
