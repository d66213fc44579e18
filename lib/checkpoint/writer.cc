#include "lib/checkpoint/writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <map>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/base/output_file.h"
#include "lib/base/status_macros.h"
#include "lib/checkpoint/catalog.h"
#include "lib/checkpoint/hashed_file.h"
#include "lib/checkpoint/layout.h"
#include "lib/checkpoint/staging.h"
#include "nlohmann/json.hpp"

namespace fusionllm::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr char kTemporaryLink[] = ".latest.partial";

absl::Status CheckStage(int64_t step, int stage, int stages) {
  if (step >= 0 && stages >= 1 && stages <= kMaxStages && stage >= 0 && stage < stages) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("cannot save step ", step, " of stage ", stage, " of ", stages));
}

// Which files of a manifest the staging folder has: those that stayed in their sites are in none that is saved, and in each that is copied.
enum class Staged { kNotThoseInSites, kAll };

absl::Status CheckStagedFiles(const std::string& folder, const std::vector<FileEntry>& files, Staged staged) {
  if (files.empty()) return absl::FailedPreconditionError("a checkpoint without files");
  for (const FileEntry& file : files) {
    if (staged == Staged::kNotThoseInSites && !file.site.empty()) continue;
    const std::string path = absl::StrCat(folder, "/", file.name);
    std::error_code error;
    const auto bytes = fs::file_size(path, error);
    if (error) return absl::FailedPreconditionError(absl::StrCat("the staged file ", path, " is not there: ", error.message()));
    if (static_cast<int64_t>(bytes) != file.bytes) {
      return absl::FailedPreconditionError(absl::StrCat("the staged file ", path, " has ", bytes, " bytes instead of ", file.bytes));
    }
  }
  return absl::OkStatus();
}

// Attempts that came to nothing may have left files in the staging folder: they are not of this checkpoint.
absl::Status RemoveUnlisted(const std::string& folder, const std::vector<FileEntry>& files, Staged staged) {
  std::error_code error;
  std::vector<fs::path> unlisted;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    const bool listed = std::any_of(files.begin(), files.end(), [&](const FileEntry& file) {
      return file.name == name && (staged == Staged::kAll || file.site.empty());
    });
    if (!listed) unlisted.push_back(entry->path());
  }
  if (error) return base::FileError(error.value(), "list", folder);
  for (const fs::path& path : unlisted) FUSIONLLM_RETURN_IF_ERROR(base::RemoveTree(path.string()));
  return absl::OkStatus();
}

// The index that Hugging Face's loaders read, when the model is in more than one file. Reads the shards' headers only.
absl::Status WriteIndex(const std::string& folder, std::vector<FileEntry>& files) {
  std::map<std::string, std::string> weight_map;
  int64_t total_bytes = 0;
  int shards = 0;
  for (const FileEntry& file : files) {
    if (ShardKindOf(file.name) != ShardKind::kModel) continue;
    ++shards;
    std::vector<std::string> tensors = file.tensors;
    if (file.site.empty()) {
      FUSIONLLM_ASSIGN_OR_RETURN(const SafetensorsFile shard, SafetensorsFile::Open(absl::StrCat(folder, "/", file.name)));
      tensors.clear();
      for (const TensorEntry& tensor : shard.tensors()) {
        tensors.push_back(tensor.name);
        total_bytes += tensor.bytes();
      }
    } else {
      total_bytes += file.tensor_bytes;
    }
    for (const std::string& tensor : tensors) {
      const auto [at, is_new] = weight_map.emplace(tensor, file.name);
      if (!is_new) {
        return absl::FailedPreconditionError(absl::StrCat("tensor '", tensor, "' is both in ", at->second, " and in ", file.name));
      }
    }
  }
  if (shards < 2) return absl::OkStatus();
  const nlohmann::ordered_json index = {{"metadata", {{"total_size", total_bytes}}}, {"weight_map", weight_map}};
  FUSIONLLM_ASSIGN_OR_RETURN(const WrittenFile written, WriteHashedFile(absl::StrCat(folder, "/", kIndexName), index.dump(2) + "\n"));
  files.push_back({.name = kIndexName, .bytes = written.bytes, .sha256 = written.sha256});
  return absl::OkStatus();
}

// Puts `staging` in the place of `target`, which may exist. Where the file system can, the two change places at once; else the old one is
// moved aside first, and a crash between the two renames costs this step's checkpoint but no other.
absl::Status MoveIntoPlace(const std::string& staging, const std::string& target) {
  std::error_code ignored;
  if (!fs::exists(target, ignored)) return base::Rename(staging, target);
  if (renameat2(AT_FDCWD, staging.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0) return base::RemoveTree(staging);
  if (errno != EINVAL && errno != ENOSYS) return base::FileError(errno, "replace", target);
  const fs::path path(target);
  const std::string aside = (path.parent_path() / absl::StrCat(".", path.filename().string(), ".old.partial")).string();
  FUSIONLLM_RETURN_IF_ERROR(base::RemoveTree(aside));
  FUSIONLLM_RETURN_IF_ERROR(base::Rename(target, aside));
  FUSIONLLM_RETURN_IF_ERROR(base::Rename(staging, target));
  return base::RemoveTree(aside);
}

// Another run's checkpoint does not make room by going for good, nor does a folder that does not tell whose it is. Returns its new path;
// empty: there is none.
absl::StatusOr<std::string> SetAside(const std::string& target, int64_t first_sequence) {
  std::error_code error;
  if (fs::symlink_status(target, error).type() == fs::file_type::not_found) return "";
  const absl::StatusOr<Manifest> manifest = LoadManifest(target);
  if (manifest.ok() && manifest->sequence >= first_sequence) return "";
  error.clear();
  for (int number = 1; !error; ++number) {
    const std::string aside = absl::StrCat(target, ".earlier-", number);
    if (fs::exists(aside, error)) continue;
    FUSIONLLM_RETURN_IF_ERROR(base::Rename(target, aside));
    return aside;
  }
  return base::FileError(error.value(), "move aside", target);
}

absl::Status PointLatest(const std::string& root, const std::string& name) {
  const std::string temporary = absl::StrCat(root, "/", kTemporaryLink);
  if (unlink(temporary.c_str()) != 0 && errno != ENOENT) return base::FileError(errno, "remove", temporary);
  if (symlink(name.c_str(), temporary.c_str()) != 0) return base::FileError(errno, "create the link", temporary);
  FUSIONLLM_RETURN_IF_ERROR(base::Rename(temporary, absl::StrCat(root, "/", kLatestName)));
  return base::SyncFolder(root);
}

// What a manifest says of files in sites are other processes' words. One that cannot be read back would make a checkpoint that is whole
// for this run and lost for the next.
absl::Status CheckReadable(const std::string& text) {
  if (static_cast<int64_t>(text.size()) > kMaxManifestBytes) {
    return absl::FailedPreconditionError(
        absl::StrCat("the manifest would have ", text.size(), " bytes: more than ", kMaxManifestBytes, " are not read"));
  }
  const absl::Status parsed = ParseManifest(text).status();
  if (parsed.ok()) return parsed;
  return absl::FailedPreconditionError(absl::StrCat("the manifest could not be read again: ", std::string(parsed.message())));
}

// Everything up to the rename.
absl::Status Stage(const std::string& root, const std::string& staging, Manifest& manifest) {
  FUSIONLLM_RETURN_IF_ERROR(CheckStagedFiles(staging, manifest.files, Staged::kNotThoseInSites));
  if (HasSiteFiles(manifest.files)) FUSIONLLM_RETURN_IF_ERROR(base::MakeFolders(staging));  // it may be that nothing was written here
  FUSIONLLM_RETURN_IF_ERROR(RemoveUnlisted(staging, manifest.files, Staged::kNotThoseInSites));
  FUSIONLLM_RETURN_IF_ERROR(WriteIndex(staging, manifest.files));
  FUSIONLLM_ASSIGN_OR_RETURN(const std::vector<CheckpointInfo> others, ListCheckpoints(root));
  manifest.sequence = std::max<int64_t>(1, manifest.first_sequence);
  for (const CheckpointInfo& other : others) manifest.sequence = std::max(manifest.sequence, other.sequence + 1);
  const std::string text = FormatManifest(manifest);
  FUSIONLLM_RETURN_IF_ERROR(CheckReadable(text));
  const absl::Status written = base::WriteFile(absl::StrCat(staging, "/", kManifestName), text);
  if (!written.ok()) return written;
  return base::SyncFolder(staging);
}

}  // namespace

absl::StatusOr<std::vector<ShardFileImage>> LayOutShard(int64_t step, int stage, int stages, const ShardContents& contents) {
  FUSIONLLM_RETURN_IF_ERROR(CheckStage(step, stage, stages));
  std::vector<ShardFileImage> files;
  for (const ShardKind kind : kShardKinds) {
    const std::vector<NamedTensor>& tensors = kind == ShardKind::kModel       ? contents.model
                                              : kind == ShardKind::kOptimizer ? contents.optimizer
                                                                              : contents.residuals;
    if (tensors.empty() && kind != ShardKind::kModel) continue;
    std::string name = ShardFileName(kind, stage, stages);
    absl::StatusOr<SafetensorsImage> image = SafetensorsImage::Create(tensors);
    if (!image.ok()) return absl::Status(image.status().code(), absl::StrCat(name, ": ", image.status().message()));
    files.push_back({.name = std::move(name), .image = *std::move(image)});
  }
  return files;
}

absl::StatusOr<std::vector<FileEntry>> WriteShard(const std::string& root, int64_t step, int stage, int stages,
                                                  const ShardContents& contents) {
  FUSIONLLM_RETURN_IF_ERROR(CheckStage(step, stage, stages));
  const std::string folder = StagingFolder(root, step);
  absl::StatusOr<std::vector<FileEntry>> entries;
  const absl::Status written = CreateInStaging(folder, [&] {
    entries = WriteShardFiles(folder, step, stage, stages, contents);
    return entries.status();
  });
  if (written.ok()) return entries;
  rmdir(folder.c_str());  // fails when others have files there: the committer abandons those
  return written;
}

absl::StatusOr<std::vector<FileEntry>> WriteShardFiles(const std::string& folder, int64_t step, int stage, int stages,
                                                       const ShardContents& contents) {
  FUSIONLLM_ASSIGN_OR_RETURN(const std::vector<ShardFileImage> files, LayOutShard(step, stage, stages, contents));
  std::vector<FileEntry> entries;
  for (const ShardFileImage& file : files) {
    const absl::StatusOr<WrittenFile> written = WriteImage(absl::StrCat(folder, "/", file.name), file.image);
    if (!written.ok()) {
      for (const FileEntry& entry : entries) unlink(absl::StrCat(folder, "/", entry.name).c_str());
      return written.status();
    }
    entries.push_back({.name = file.name,
                       .bytes = written->bytes,
                       .sha256 = written->sha256,
                       .tensors = file.image.tensors(),
                       .tensor_bytes = file.image.tensor_bytes()});
  }
  return entries;
}

absl::StatusOr<CommittedCheckpoint> CommitCheckpoint(const std::string& root, Manifest manifest, int64_t keep) {
  FUSIONLLM_RETURN_IF_ERROR(CheckStage(manifest.step, 0, 1));
  const std::string staging = StagingFolder(root, manifest.step);
  const std::string name = StepFolderName(manifest.step);
  const std::string target = absl::StrCat(root, "/", name);
  if (absl::Status status = Stage(root, staging, manifest); !status.ok()) {
    base::RemoveTree(staging).IgnoreError();  // the first error is the one to tell
    return status;
  }
  CommittedCheckpoint committed{.path = target};
  FUSIONLLM_ASSIGN_OR_RETURN(committed.set_aside, SetAside(target, manifest.first_sequence));
  FUSIONLLM_RETURN_IF_ERROR(MoveIntoPlace(staging, target));
  FUSIONLLM_RETURN_IF_ERROR(base::SyncFolder(root));
  // A new root must survive as well. Its parent may be out of reach, which then is not ours to make durable.
  base::SyncFolder(absl::StrCat(root, "/..")).IgnoreError();
  FUSIONLLM_RETURN_IF_ERROR(PointLatest(root, name));
  FUSIONLLM_RETURN_IF_ERROR(PruneCheckpoints(root, keep, manifest.first_sequence));
  return committed;
}

absl::StatusOr<std::string> InstallCheckpoint(const std::string& root, const Manifest& manifest) {
  FUSIONLLM_RETURN_IF_ERROR(CheckStage(manifest.step, 0, 1));
  const std::string staging = StagingFolder(root, manifest.step);
  const std::string name = StepFolderName(manifest.step);
  std::string target = absl::StrCat(root, "/", name);
  FUSIONLLM_RETURN_IF_ERROR(CheckStagedFiles(staging, manifest.files, Staged::kAll));
  FUSIONLLM_RETURN_IF_ERROR(RemoveUnlisted(staging, manifest.files, Staged::kAll));
  FUSIONLLM_RETURN_IF_ERROR(base::WriteFile(absl::StrCat(staging, "/", kManifestName), FormatManifest(manifest)));
  FUSIONLLM_RETURN_IF_ERROR(base::SyncFolder(staging));
  FUSIONLLM_RETURN_IF_ERROR(SetAside(target, std::numeric_limits<int64_t>::max()).status());
  FUSIONLLM_RETURN_IF_ERROR(base::Rename(staging, target));
  FUSIONLLM_RETURN_IF_ERROR(PointLatest(root, name));
  return target;
}

absl::Status AbandonCheckpoint(const std::string& root, int64_t step) { return base::RemoveTree(StagingFolder(root, step)); }

absl::StatusOr<std::vector<std::string>> CleanStaging(const std::string& root) {
  std::vector<std::string> removed;
  std::error_code error;
  if (!fs::exists(root, error)) return removed;
  fs::directory_iterator entry(root, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (IsStagingName(name) || name == kTemporaryLink) removed.push_back(name);
  }
  if (error) return base::FileError(error.value(), "list", root);
  std::sort(removed.begin(), removed.end());
  for (const std::string& name : removed) FUSIONLLM_RETURN_IF_ERROR(base::RemoveTree(absl::StrCat(root, "/", name)));
  return removed;
}

}  // namespace fusionllm::checkpoint
