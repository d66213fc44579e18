#include "cli/join/join_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace fusionllm::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kPrefix[] = "fusionctl-join-";
constexpr int kAttempts = 100;

// The lock on a folder of this user, or -1 when somebody has it or it is not ours.
int TryLock(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return -1;
  struct stat status = {};
  if (fstat(fd, &status) == 0 && status.st_uid == geteuid() && flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
  close(fd);
  return -1;
}

void RemoveStale(const std::string& parent) {
  std::error_code error;
  fs::directory_iterator entry(parent, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    if (!absl::StartsWith(entry->path().filename().string(), kPrefix)) continue;
    const int lock = TryLock(entry->path().string());
    if (lock < 0) continue;
    std::error_code ignored;
    fs::remove_all(entry->path(), ignored);
    close(lock);
  }
}

}  // namespace

absl::StatusOr<JoinFolder> JoinFolder::Create(const std::string& parent) {
  RemoveStale(parent);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    std::string path = absl::StrCat(parent, "/", kPrefix, "XXXXXX");
    if (mkdtemp(path.data()) == nullptr) {
      return absl::UnavailableError(absl::StrCat("cannot make a folder like ", path, ": ", std::strerror(errno)));
    }
    // Between the two another process may have taken the new folder for a stale one and removed it.
    const int lock = TryLock(path);
    std::error_code ignored;
    if (lock >= 0 && fs::exists(path, ignored)) return JoinFolder(std::move(path), lock);
    if (lock >= 0) close(lock);
  }
  return absl::UnavailableError(absl::StrCat("cannot keep a folder in ", parent, ": others remove or lock it"));
}

JoinFolder::JoinFolder(JoinFolder&& other) noexcept : path_(std::move(other.path_)), lock_(std::exchange(other.lock_, -1)) {}

JoinFolder::~JoinFolder() {
  if (lock_ < 0) return;
  std::error_code ignored;
  fs::remove_all(path_, ignored);
  close(lock_);
}

}  // namespace fusionllm::cli
