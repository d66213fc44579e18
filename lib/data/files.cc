#include "lib/data/files.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "lib/base/file_error.h"
#include "lib/base/status_macros.h"

namespace fusionllm::data {
namespace {

namespace fs = std::filesystem;

// Well below the usual limit of 1024 descriptors, which sockets and logs share.
constexpr size_t kMaxKeptOpen = 128;
// In place of the device of a file that has gone since it was read: such a file is like no other.
constexpr uint64_t kGone = ~uint64_t{0};

// The files below a folder, unsorted. Links to folders are followed once all that lies there without them is known: what has a place of its
// own is found there, and no folder is read twice, so that a link to one above it ends no run.
class Walk {
 public:
  explicit Walk(const FileFilter& filter) : filter_(filter) {}

  absl::StatusOr<std::vector<fs::path>> Files(const fs::path& folder) {
    FUSIONLLM_RETURN_IF_ERROR(Enter(folder, 1));
    while (!links_.empty()) {
      const auto links = std::exchange(links_, {});
      for (const auto& [link, depth] : links) FUSIONLLM_RETURN_IF_ERROR(Enter(link, depth));
    }
    return std::move(found_);
  }

 private:
  absl::Status Enter(const fs::path& folder, int depth) {
    if (depth > kMaxFolderDepth) {
      return absl::InvalidArgumentError(absl::StrCat("folder ", folder.string(), " is more than ", kMaxFolderDepth, " levels deep"));
    }
    struct stat info {};
    if (stat(folder.c_str(), &info) != 0) return base::FileError(errno, "list folder", folder.string());
    if (!entered_.insert({info.st_dev, info.st_ino}).second) return absl::OkStatus();
    std::error_code error;
    fs::directory_iterator entry(folder, error);
    for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
      if (absl::StartsWith(entry->path().filename().string(), ".")) continue;
      FUSIONLLM_RETURN_IF_ERROR(Add(*entry, depth));
    }
    if (error) return base::FileError(error.value(), "list folder", folder.string());
    return absl::OkStatus();
  }

  absl::Status Add(const fs::directory_entry& entry, int depth) {
    const fs::path& path = entry.path();
    std::error_code none, error;
    const bool link = entry.is_symlink(none);
    const fs::file_type type = entry.status(error).type();
    if (type == fs::file_type::not_found && link) {
      return absl::InvalidArgumentError(absl::StrCat(path.string(), " is a link that leads nowhere",
                                                     "; bring what it leads to, remove it, or name the files that are meant"));
    }
    if (type == fs::file_type::none) return base::FileError(error.value(), "look at", path.string());
    if (type == fs::file_type::directory && link) {
      links_.emplace(path, depth + 1);
      return absl::OkStatus();
    }
    if (type == fs::file_type::directory) return Enter(path, depth + 1);
    const bool wanted = filter_.accepts == nullptr || filter_.accepts(path.filename().string());
    if (type != fs::file_type::regular || !wanted) return absl::OkStatus();
    if (found_.size() >= kMaxFiles) {
      return absl::InvalidArgumentError(
          absl::StrCat("folder ", path.parent_path().string(), " brings the data to more than ", kMaxFiles, " files"));
    }
    found_.push_back(path);
    return absl::OkStatus();
  }

  const FileFilter& filter_;
  std::set<std::pair<dev_t, ino_t>> entered_;
  std::map<fs::path, int> links_;  // to folders, with their depth
  std::vector<fs::path> found_;
};

// For a message about `missing`: what the nearest folder above it holds, so that a misspelt name, or a file that a mounted ConfigMap does
// not have, is seen at once. Empty: nothing can be said.
std::string WhatIsThere(const fs::path& missing) {
  constexpr size_t kMaxNamed = 5, kMaxRead = 1000;
  fs::path folder = missing.lexically_normal();
  std::error_code error;
  do {
    if (!folder.has_relative_path()) return "";
    folder = folder.parent_path();
  } while (!fs::is_directory(folder, error));
  if (!folder.has_relative_path()) return "";  // what a machine has at its root does not help
  std::vector<std::string> names;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator() && names.size() < kMaxRead; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    std::error_code unknown;
    if (!absl::StartsWith(name, ".")) names.push_back(absl::StrCat(name, entry->is_directory(unknown) ? "/" : ""));
  }
  if (error) return "";
  if (names.empty()) return absl::StrCat("; ", folder.string(), " is empty");
  std::sort(names.begin(), names.end());
  const size_t named = std::min(names.size(), kMaxNamed);
  const std::string more =
      names.size() > named ? absl::StrCat(" and ", names.size() - named, names.size() == kMaxRead ? " or more" : " more") : "";
  return absl::StrCat("; ", folder.string(), " has: ", absl::StrJoin(names.begin(), names.begin() + static_cast<ptrdiff_t>(named), ", "),
                      more);
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
    if (status.type() == fs::file_type::not_found) {
      return absl::NotFoundError(absl::StrCat("data path ", path.string(), " does not exist", WhatIsThere(path)));
    }
    if (error) return base::FileError(error.value(), "read data path", path.string());
    if (fs::is_regular_file(status)) {
      files.push_back(path.string());
    } else if (fs::is_directory(status)) {
      FUSIONLLM_ASSIGN_OR_RETURN(std::vector<fs::path> found, Walk(filter).Files(path));
      if (found.empty()) {
        const std::string lacks =
            filter.description.empty() ? "file" : absl::StrCat(filter.description, ": is spec.data.kind what lies there?");
        return absl::InvalidArgumentError(absl::StrCat("data folder ", path.string(), " holds no ", lacks));
      }
      std::sort(found.begin(), found.end());
      for (const fs::path& file : found) files.push_back(file.string());
    } else {
      return absl::InvalidArgumentError(absl::StrCat("data path ", path.string(), " is neither a file nor a folder"));
    }
    if (files.size() > kMaxFiles) return absl::InvalidArgumentError(absl::StrCat("data has more than ", kMaxFiles, " files"));
  }
  return files;
}

void FilesRead::Add(const base::SourceFile& file) {
  ++count;
  bytes += file.size();
  Cover(file.path());
  if (first.size() < kMaxListed) first.push_back({file.path(), file.size()});
  struct stat info {};
  const bool there = stat(file.path().c_str(), &info) == 0;
  identities.push_back(there ? Identity{info.st_dev, info.st_ino} : Identity{kGone, static_cast<uint64_t>(count)});
}

void FilesRead::Skip(std::string path, std::string why) {
  ++skipped_count;
  Cover(path);
  if (skipped.size() < kMaxSkippedListed) skipped.push_back({std::move(path), std::move(why)});
}

std::string FilesRead::NameOf(absl::string_view path) const {
  if (!folder.empty() && absl::ConsumePrefix(&path, folder)) (void)absl::ConsumePrefix(&path, "/");
  return std::string(path);
}

void FilesRead::Cover(absl::string_view path) {
  std::string parent = fs::path(std::string(path)).parent_path().string();
  if (count + skipped_count == 1) {
    folder = std::move(parent);
    return;
  }
  while (!folder.empty() && parent != folder && !absl::StartsWith(parent, folder + "/")) {
    const size_t slash = folder.rfind('/');
    folder.resize(slash == std::string::npos ? 0 : slash);
  }
}

FileSample SharedFiles(const FilesRead& files, const FilesRead& others) {
  std::vector<FilesRead::Identity> sorted = others.identities;
  std::sort(sorted.begin(), sorted.end());
  FileSample shared;
  for (size_t i = 0; i < files.identities.size(); ++i) {
    const FilesRead::Identity& file = files.identities[i];
    if (file.device == kGone || !std::binary_search(sorted.begin(), sorted.end(), file)) continue;
    ++shared.count;
    if (i < files.first.size()) shared.names.push_back(files.NameOf(files.first[i].path));
  }
  return shared;
}

FileSample RepeatedFiles(const FilesRead& files) {
  std::map<FilesRead::Identity, int64_t> times;
  FileSample repeated;
  for (size_t i = 0; i < files.identities.size(); ++i) {
    if (++times[files.identities[i]] != 2) continue;
    ++repeated.count;
    if (i < files.first.size()) repeated.names.push_back(files.NameOf(files.first[i].path));
  }
  return repeated;
}

namespace {

constexpr int64_t kComparedEnd = int64_t{1} << 16;

// Of the beginning and the end.
std::optional<size_t> HashOfEnds(const FilesRead::File& listed) {
  const absl::StatusOr<base::SourceFile> file = base::SourceFile::Open(listed.path, /*keep_open=*/true);
  if (!file.ok() || file->size() != listed.bytes) return std::nullopt;
  const int64_t first = std::min(kComparedEnd, listed.bytes), last = std::min(kComparedEnd, listed.bytes - first);
  std::string ends(static_cast<size_t>(first + last), '\0');
  const std::span<std::byte> bytes = std::as_writable_bytes(std::span(ends));
  const bool read = file->ReadAt(0, bytes.first(static_cast<size_t>(first))).ok() &&
                    (last == 0 || file->ReadAt(listed.bytes - last, bytes.last(static_cast<size_t>(last))).ok());
  return read ? std::optional(std::hash<std::string>()(ends)) : std::nullopt;
}

// Each file is read once.
class Hashes {
 public:
  explicit Hashes(const FilesRead& files) : files_(files), known_(files.first.size()) {}
  std::optional<size_t> Of(size_t i) {
    if (!known_[i]) known_[i] = HashOfEnds(files_.first[i]);
    return *known_[i];
  }

 private:
  const FilesRead& files_;
  std::vector<std::optional<std::optional<size_t>>> known_;
};

}  // namespace

std::vector<Copy> CopiesOf(const FilesRead& files, const FilesRead& others) {
  std::multimap<int64_t, size_t> by_size;
  for (size_t i = 0; i < others.first.size(); ++i) by_size.emplace(others.first[i].bytes, i);
  std::vector<Copy> copies;
  Hashes own(files), foreign(others);
  const bool same = &others == &files;
  for (size_t i = 0; i < files.first.size(); ++i) {
    const FilesRead::File& file = files.first[i];
    if (file.bytes == 0) continue;
    const auto [begin, end] = by_size.equal_range(file.bytes);
    for (auto other = begin; other != end; ++other) {
      const size_t o = other->second;
      if (same && o >= i) continue;
      if (others.identities[o] == files.identities[i]) continue;
      const std::optional<size_t> hash = own.Of(i);
      if (!hash || hash != (same ? own : foreign).Of(o)) continue;
      copies.push_back({files.NameOf(file.path), others.NameOf(others.first[o].path), file.bytes});
      break;
    }
  }
  return copies;
}

std::vector<Copy> CopiedFiles(const FilesRead& files) { return CopiesOf(files, files); }

absl::StatusOr<std::vector<base::SourceFile>> OpenFiles(std::span<const std::string> paths) {
  std::vector<base::SourceFile> files;
  files.reserve(paths.size());
  for (const std::string& path : paths) {
    FUSIONLLM_ASSIGN_OR_RETURN(base::SourceFile file, base::SourceFile::Open(path, paths.size() <= kMaxKeptOpen));
    files.push_back(std::move(file));
  }
  return files;
}

}  // namespace fusionllm::data
