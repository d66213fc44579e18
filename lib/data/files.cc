#include "lib/data/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"

namespace fusionllm::data {
namespace {

namespace fs = std::filesystem;

// Well below the usual limit of 1024 descriptors, which sockets and logs share.
constexpr size_t kMaxKeptOpen = 128;

absl::Status CannotRead(const std::string& path, int error) {
  const std::string message = absl::StrCat("cannot read ", path, ": ", std::strerror(error));
  return error == ENOENT ? absl::NotFoundError(message) : absl::UnavailableError(message);
}

// Appends the files below `folder`, unsorted.
absl::Status Walk(const fs::path& folder, int depth, const FileFilter& filter, std::vector<fs::path>& found) {
  if (depth > kMaxFolderDepth) {
    return absl::InvalidArgumentError(absl::StrCat("folder ", folder.string(), " is more than ", kMaxFolderDepth, " levels deep"));
  }
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.empty() || name[0] == '.') continue;
    std::error_code ignored;  // a link to nothing is skipped as not a regular file
    if (entry->is_directory(ignored) && !entry->is_symlink(ignored)) {
      FUSIONLLM_RETURN_IF_ERROR(Walk(entry->path(), depth + 1, filter, found));
    } else if (entry->is_regular_file(ignored) && (filter == nullptr || filter(name))) {
      if (found.size() >= kMaxFiles) {
        return absl::InvalidArgumentError(absl::StrCat("folder ", folder.string(), " brings the data to more than ", kMaxFiles, " files"));
      }
      found.push_back(entry->path());
    }
  }
  if (error) return absl::UnavailableError(absl::StrCat("cannot list folder ", folder.string(), ": ", error.message()));
  return absl::OkStatus();
}

absl::StatusOr<int> OpenDescriptor(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return CannotRead(path, errno);
  return descriptor;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ExpandPaths(std::span<const std::string> paths, absl::string_view base_folder,
                                                     const FileFilter& filter) {
  if (paths.empty()) return absl::InvalidArgumentError("data has no path: name at least one file or folder");
  std::vector<std::string> files;
  for (const std::string& text : paths) {
    if (text.empty()) return absl::InvalidArgumentError("data has an empty path");
    const fs::path path = fs::path(std::string(base_folder)) / text;
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (status.type() == fs::file_type::not_found) return absl::NotFoundError(absl::StrCat("data path ", path.string(), " does not exist"));
    if (error) return absl::UnavailableError(absl::StrCat("cannot read data path ", path.string(), ": ", error.message()));
    if (fs::is_regular_file(status)) {
      files.push_back(path.string());
    } else if (fs::is_directory(status)) {
      std::vector<fs::path> found;
      FUSIONLLM_RETURN_IF_ERROR(Walk(path, 1, filter, found));
      if (found.empty()) return absl::InvalidArgumentError(absl::StrCat("data folder ", path.string(), " holds no fitting file"));
      std::sort(found.begin(), found.end());
      for (const fs::path& file : found) files.push_back(file.string());
    } else {
      return absl::InvalidArgumentError(absl::StrCat("data path ", path.string(), " is neither a file nor a folder"));
    }
    if (files.size() > kMaxFiles) return absl::InvalidArgumentError(absl::StrCat("data has more than ", kMaxFiles, " files"));
  }
  return files;
}

absl::StatusOr<SourceFile> SourceFile::Open(std::string path, bool keep_open) {
  FUSIONLLM_ASSIGN_OR_RETURN(const int descriptor, OpenDescriptor(path));
  struct stat info = {};
  if (fstat(descriptor, &info) != 0) {
    const int error = errno;
    close(descriptor);
    return CannotRead(path, error);
  }
  if (!keep_open) close(descriptor);
  return SourceFile(std::move(path), info.st_size, keep_open ? descriptor : -1);
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
    FUSIONLLM_ASSIGN_OR_RETURN(descriptor, OpenDescriptor(path_));
  }
  absl::Status status;
  while (!into.empty()) {
    const ssize_t got = pread(descriptor, into.data(), into.size(), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      status = absl::UnavailableError(absl::StrCat("cannot read ", path_, " at byte ", offset, ": ", std::strerror(errno)));
      break;
    }
    if (got == 0) {
      status = absl::DataLossError(absl::StrCat(path_, " ends at byte ", offset, " but had ", size_, " bytes when it was opened"));
      break;
    }
    into = into.subspan(static_cast<size_t>(got));
    offset += got;
  }
  if (descriptor_ < 0) close(descriptor);
  return status;
}

absl::StatusOr<std::vector<SourceFile>> OpenFiles(std::span<const std::string> paths) {
  std::vector<SourceFile> files;
  files.reserve(paths.size());
  for (const std::string& path : paths) {
    FUSIONLLM_ASSIGN_OR_RETURN(SourceFile file, SourceFile::Open(path, paths.size() <= kMaxKeptOpen));
    files.push_back(std::move(file));
  }
  return files;
}

}  // namespace fusionllm::data
