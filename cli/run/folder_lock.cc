#include "cli/run/folder_lock.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <system_error>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "lib/base/exit_code.h"
#include "lib/base/output_file.h"

namespace fusionllm::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kLockFile[] = "/.lock";

absl::Status Taken(const std::string& path, absl::string_view remedy) {
  return absl::FailedPreconditionError(absl::StrCat("another run is using ", path, "; ", remedy));
}

// Of a file system that lets root write, as access() has it, and makes no file for anybody.
bool IsOfTheKernel(const fs::path& folder) {
  constexpr int64_t kMagics[] = {PROC_SUPER_MAGIC, SYSFS_MAGIC, CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC, DEBUGFS_MAGIC, SECURITYFS_MAGIC};
  struct statfs info = {};
  return statfs(folder.c_str(), &info) == 0 && absl::c_linear_search(kMagics, static_cast<int64_t>(info.f_type));
}

}  // namespace

bool FolderLock::IsHeld(const std::string& path) {
  const int fd = open((path + kLockFile).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool held = flock(fd, LOCK_SH | LOCK_NB) != 0;
  close(fd);
  return held;
}

absl::Status FolderLock::CheckCanWrite(const std::string& path) {
  std::error_code error;
  fs::path there = path;
  // A link that leads nowhere is there, too: no folder can be made in its place.
  while (!fs::exists(fs::symlink_status(there, error)) && there.has_relative_path()) there = there.parent_path();
  const absl::string_view what = there == fs::path(path) ? "write to" : "make the folder";
  if (!fs::is_directory(there, error)) return base::AsBadInput(base::FileError(ENOTDIR, "make the folder", path));
  if (access(there.c_str(), W_OK | X_OK) != 0) return base::AsBadInput(base::FileError(errno, what, path));
  if (!IsOfTheKernel(there)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("cannot ", what, " ", path, ": ", there.string(), " is of the kernel and keeps no files"));
}

absl::Status FolderLock::Check(const std::string& path, absl::string_view remedy) {
  const absl::Status can_write = CheckCanWrite(path);
  return can_write.ok() && IsHeld(path) ? Taken(path, remedy) : can_write;
}

absl::StatusOr<FolderLock> FolderLock::Acquire(const std::string& path, absl::string_view remedy) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return base::AsBadInput(base::FileError(error.value(), "make the folder", path));
  const std::string file = path + kLockFile;
  while (true) {
    const int fd = open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) return base::AsBadInput(base::FileError(errno, "create", file));
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
