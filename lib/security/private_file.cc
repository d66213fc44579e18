#include "lib/security/private_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/base/file_error.h"
#include "lib/base/status_macros.h"

namespace fusionllm::security {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number() const { return number_; }

 private:
  int number_;
};

absl::Status WriteAndSync(int file, absl::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return base::FileError(errno, "write", path);
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return fsync(file) == 0 ? absl::OkStatus() : base::FileError(errno, "sync", path);
}

}  // namespace

absl::Status MakePrivateFolder(const std::string& path) {
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  std::error_code error;
  if (!parent.empty()) std::filesystem::create_directories(parent, error);
  if (error) return base::FileError(error.value(), "make the folder", parent.string());
  if (mkdir(path.c_str(), 0700) == 0) return absl::OkStatus();
  if (errno != EEXIST) return base::FileError(errno, "make the folder", path);
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return base::FileError(errno, "look at", path);
  if (!S_ISDIR(info.st_mode)) return absl::FailedPreconditionError(absl::StrCat(path, " is not a folder"));
  if (info.st_uid != geteuid()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the folder ", path, " belongs to another user (", info.st_uid, "), so keys are not safe in it; name another folder"));
  }
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "the folder %s is writable by others (mode %04o), so keys are not safe in it; run chmod 700 on it", path, info.st_mode & 07777));
  }
  return absl::OkStatus();
}

absl::Status WritePrivateFile(const std::string& path, absl::string_view bytes) {
  std::string aside = absl::StrCat(path, ".XXXXXX");
  const Descriptor file(mkostemp(aside.data(), O_CLOEXEC));  // mode 0600
  if (file.number() < 0) return base::FileError(errno, "make a file beside", path);
  absl::Status status = WriteAndSync(file.number(), bytes, aside);
  if (status.ok() && rename(aside.c_str(), path.c_str()) != 0) status = base::FileError(errno, "put into place", path);
  if (!status.ok()) {
    unlink(aside.c_str());
    return status;
  }
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  const Descriptor folder(open(parent.empty() ? "." : parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.number() < 0 || fsync(folder.number()) != 0) return base::FileError(errno, "sync the folder of", path);
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadSmallFile(const std::string& path, size_t max_bytes) {
  // Non-blocking: opening a named pipe would wait for its writer.
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.number() < 0) return base::FileError(errno, "read", path);
  struct stat info {};
  if (fstat(file.number(), &info) != 0) return base::FileError(errno, "look at", path);
  if (!S_ISREG(info.st_mode)) return absl::InvalidArgumentError(absl::StrCat(path, " is not a plain file"));
  std::string bytes(max_bytes + 1, '\0');
  size_t size = 0;
  while (size < bytes.size()) {
    const ssize_t got = read(file.number(), bytes.data() + size, bytes.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return base::FileError(errno, "read", path);
    if (got == 0) break;
    size += static_cast<size_t>(got);
  }
  if (size == 0) return absl::InvalidArgumentError(absl::StrCat(path, " is empty"));
  if (size > max_bytes) return absl::InvalidArgumentError(absl::StrCat(path, " is longer than the ", max_bytes, " bytes it may have"));
  bytes.resize(size);
  return bytes;
}

}  // namespace fusionllm::security
