#include "lib/base/source_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "lib/base/file_error.h"
#include "lib/base/status_macros.h"

namespace fusionllm::base {
namespace {

// A folder where a file is read: the wrong thing was named.
absl::Status CannotRead(const std::string& path, int error) {
  const absl::Status status = FileError(error, "read", path);
  return error == EISDIR ? absl::InvalidArgumentError(status.message()) : status;
}

absl::StatusOr<int> OpenDescriptor(const std::string& path, int more_flags = 0) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | more_flags);
  if (descriptor < 0) return CannotRead(path, errno);
  return descriptor;
}

// What has positions to read from. A pipe would wait for a writer, and the length of a device is not what it says.
absl::StatusOr<int> OpenRegular(const std::string& path, int64_t* size = nullptr) {
  FUSIONLLM_ASSIGN_OR_RETURN(const int descriptor, OpenDescriptor(path, O_NONBLOCK));
  struct stat info = {};
  absl::Status status;
  if (fstat(descriptor, &info) != 0) {
    status = CannotRead(path, errno);
  } else if (!S_ISREG(info.st_mode)) {
    status = absl::InvalidArgumentError(absl::StrCat("cannot read ", path, ": it is not a regular file"));
  }
  if (!status.ok()) {
    close(descriptor);
    return status;
  }
  if (size != nullptr) *size = info.st_size;
  return descriptor;
}

absl::StatusOr<std::string> ReadAndClose(int descriptor, const std::string& path, int64_t bytes_max) {
  absl::Status status;
  std::string text;
  char chunk[1 << 16];
  while (true) {
    const ssize_t got = read(descriptor, chunk, sizeof chunk);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) status = CannotRead(path, errno);
    if (got <= 0) break;
    if (static_cast<int64_t>(text.size()) + got > bytes_max) {
      status = absl::InvalidArgumentError(absl::StrCat(path, " has more than the ", bytes_max, " bytes that it may have"));
      break;
    }
    text.append(chunk, static_cast<size_t>(got));
  }
  close(descriptor);
  if (!status.ok()) return status;
  return text;
}

}  // namespace

absl::StatusOr<SourceFile> SourceFile::Open(std::string path, bool keep_open) {
  int64_t size = 0;
  FUSIONLLM_ASSIGN_OR_RETURN(const int descriptor, OpenRegular(path, &size));
  if (!keep_open) close(descriptor);
  return SourceFile(std::move(path), size, keep_open ? descriptor : -1);
}

SourceFile::SourceFile(SourceFile&& other) noexcept
    : path_(std::move(other.path_)), size_(other.size_), descriptor_(std::exchange(other.descriptor_, -1)) {}

SourceFile& SourceFile::operator=(SourceFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(size_, other.size_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

SourceFile::~SourceFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

absl::Status SourceFile::ReadAt(int64_t offset, std::span<std::byte> into) const {
  int descriptor = descriptor_;
  if (descriptor < 0) {
    FUSIONLLM_ASSIGN_OR_RETURN(descriptor, OpenRegular(path_));
  }
  absl::Status status;
  while (!into.empty()) {
    const ssize_t got = pread(descriptor, into.data(), into.size(), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      status = FileError(errno, absl::StrCat("read byte ", offset, " of"), path_);
      break;
    }
    if (got == 0) {
      struct stat info = {};
      const int64_t end = fstat(descriptor, &info) == 0 ? std::min<int64_t>(info.st_size, offset) : offset;
      status = absl::DataLossError(absl::StrCat(path_, " ends at byte ", end, " but had ", size_, " bytes when it was opened"));
      break;
    }
    into = into.subspan(static_cast<size_t>(got));
    offset += got;
  }
  if (descriptor_ < 0) close(descriptor);
  return status;
}

absl::StatusOr<std::string> ReadSmallFile(const std::string& path, int64_t bytes_max) {
  FUSIONLLM_ASSIGN_OR_RETURN(const int descriptor, OpenRegular(path));
  return ReadAndClose(descriptor, path, bytes_max);
}

absl::StatusOr<std::string> ReadSmallInput(const std::string& path, int64_t bytes_max) {
  FUSIONLLM_ASSIGN_OR_RETURN(const int descriptor, OpenDescriptor(path));
  return ReadAndClose(descriptor, path, bytes_max);
}

}  // namespace fusionllm::base
