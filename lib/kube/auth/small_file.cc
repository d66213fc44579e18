#include "lib/kube/auth/small_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "lib/base/file_error.h"

namespace fusionllm::kube {
namespace {

absl::Status CannotRead(const std::string& path, int error) {
  const std::string text = absl::StrCat(path, ": cannot be read: ", std::strerror(error));
  // A folder on the way that is a file: nothing is there.
  return absl::Status(error == ENOTDIR ? absl::StatusCode::kNotFound : base::FileError(error, "read", path).code(), text);
}

}  // namespace

absl::StatusOr<std::string> ReadSmallFile(const std::string& path, size_t max_bytes) {
  // Not to hang on a pipe that is not written to.
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return CannotRead(path, errno);
  struct Close {
    int file;
    ~Close() { close(file); }
  } const close_it{file};
  struct stat status = {};
  if (fstat(file, &status) != 0) return CannotRead(path, errno);
  if (!S_ISREG(status.st_mode)) return absl::InvalidArgumentError(absl::StrCat(path, ": is no plain file"));
  std::string text;
  char bytes[16 << 10];
  while (true) {
    const ssize_t got = read(file, bytes, sizeof(bytes));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return CannotRead(path, errno);
    if (got == 0) return text;
    text.append(bytes, static_cast<size_t>(got));
    if (text.size() > max_bytes) return absl::InvalidArgumentError(absl::StrCat(path, ": is longer than ", max_bytes, " bytes"));
  }
}

}  // namespace fusionllm::kube
