#include "lib/base/output_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "lib/base/status_macros.h"

namespace fusionllm::base {
namespace {

// To what cannot be replaced: a device, a pipe.
absl::Status WriteThrough(const std::string& path, absl::string_view text) {
  const int descriptor = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (descriptor < 0) return FileError(errno, "write", path);
  absl::Status status;
  while (status.ok() && !text.empty()) {
    const ssize_t written = write(descriptor, text.data(), text.size());
    if (written >= 0) text.remove_prefix(static_cast<size_t>(written));
    if (written < 0 && errno != EINTR) status = FileError(errno, "write", path);
  }
  if (close(descriptor) != 0 && status.ok()) status = FileError(errno, "write", path);
  return status;
}

}  // namespace

absl::StatusOr<OutputFile> OutputFile::Create(std::string path) {
  const int descriptor = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor < 0) return FileError(errno, "create", path);
  return OutputFile(std::move(path), descriptor);
}

OutputFile::OutputFile(OutputFile&& other) noexcept : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

OutputFile& OutputFile::operator=(OutputFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

OutputFile::~OutputFile() {
  if (descriptor_ < 0) return;
  close(descriptor_);
  unlink(path_.c_str());
}

absl::Status OutputFile::Fail(absl::string_view what) {
  const absl::Status status = FileError(errno, what, path_);
  if (descriptor_ >= 0) close(std::exchange(descriptor_, -1));
  unlink(path_.c_str());
  return status;
}

absl::Status OutputFile::Write(std::span<const std::byte> bytes) {
  if (descriptor_ < 0) return absl::FailedPreconditionError(absl::StrCat(path_, " is closed"));
  while (!bytes.empty()) {
    const ssize_t written = write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Fail("write");
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status OutputFile::Finish() {
  if (descriptor_ < 0) return absl::FailedPreconditionError(absl::StrCat(path_, " is closed"));
  if (fsync(descriptor_) != 0) return Fail("sync");
  if (close(std::exchange(descriptor_, -1)) != 0) return Fail("close");
  return absl::OkStatus();
}

absl::Status WriteFile(const std::string& path, absl::string_view text) {
  FUSIONLLM_ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create(path));
  FUSIONLLM_RETURN_IF_ERROR(file.Write(std::as_bytes(std::span(text.data(), text.size()))));
  return file.Finish();
}

absl::StatusOr<Replacement> PrepareReplacement(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  const bool is_there = fs::exists(status);
  if (is_there && !fs::is_regular_file(status)) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is not a regular file: it would be replaced"));
  }
  if (is_there && access(path.c_str(), W_OK) != 0) return FileError(errno, "write", path);
  const fs::path target = fs::weakly_canonical(fs::absolute(path), error);
  if (error) return FileError(error.value(), "write", path);
  return Replacement{target.string(), absl::StrCat(target.string(), ".", getpid(), ".partial")};
}

absl::Status CommitReplacement(const Replacement& replacement) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::file_status before = fs::status(replacement.target, error);
  if (fs::exists(before)) fs::permissions(replacement.temporary, before.permissions(), error);  // else as the system makes new ones
  absl::Status status = Rename(replacement.temporary, replacement.target);
  if (!status.ok()) RemoveTree(replacement.temporary).IgnoreError();  // the first error is the one to tell
  return status;
}

absl::Status ReplaceFile(const std::string& path, absl::string_view text) {
  std::error_code error;
  const auto type = std::filesystem::status(path, error).type();
  if (type == std::filesystem::file_type::directory) return absl::InvalidArgumentError(absl::StrCat("cannot write ", path, ": a folder"));
  if (type != std::filesystem::file_type::not_found && type != std::filesystem::file_type::regular) return WriteThrough(path, text);
  FUSIONLLM_ASSIGN_OR_RETURN(const Replacement replacement, PrepareReplacement(path));
  absl::Status status = WriteFile(replacement.temporary, text);
  if (status.ok()) status = CommitReplacement(replacement);
  return absl::Status(status.code(), absl::StrReplaceAll(status.message(), {{replacement.temporary, path}}));
}

absl::Status MakeFolders(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  return error ? FileError(error.value(), "create folder", path) : absl::OkStatus();
}

absl::Status SyncFolder(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return FileError(errno, "open folder", path);
  const int error = fsync(descriptor) == 0 ? 0 : errno;
  close(descriptor);
  // Some network file systems cannot sync a folder and say so by EINVAL; their renames are durable when they return.
  return error == 0 || error == EINVAL ? absl::OkStatus() : FileError(error, "sync folder", path);
}

absl::Status Rename(const std::string& from, const std::string& to) {
  if (rename(from.c_str(), to.c_str()) == 0) return absl::OkStatus();
  return FileError(errno, absl::StrCat("rename ", from, " to"), to);
}

absl::Status RemoveTree(const std::string& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  return error ? FileError(error.value(), "remove", path) : absl::OkStatus();
}

}  // namespace fusionllm::base
