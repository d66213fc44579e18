#include "lib/checkpoint/catalog.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "lib/base/file_error.h"
#include "lib/base/output_file.h"
#include "lib/base/source_file.h"
#include "lib/base/status_macros.h"
#include "lib/checkpoint/layout.h"
#include "lib/checkpoint/manifest.h"
#include "lib/checkpoint/reader.h"

namespace fusionllm::checkpoint {
namespace {

namespace fs = std::filesystem;

void Inspect(CheckpointInfo& info) {
  const absl::StatusOr<Manifest> manifest = LoadManifest(info.path);
  if (!manifest.ok()) {
    info.problem = std::string(manifest.status().message());
    info.newer_format = absl::IsUnimplemented(manifest.status());
    info.sequence = SequenceOfNewerFormat(manifest.status()).value_or(0);
    return;
  }
  info.sequence = manifest->sequence;
  for (const FileEntry& file : manifest->files) info.bytes += file.bytes;
  info.other_sites = DescribeFilesInOtherSites(FilesInOtherSites(info.path, *manifest));
  if (const absl::Status sizes = CheckFileSizes(info.path, *manifest); !sizes.ok()) info.problem = std::string(sizes.message());
}

// Whether a reader holds the checkpoint open (reader.h). Holding the answer needs no lock: a reader that comes later finds it gone.
bool IsBeingRead(const std::string& path) {
  const int descriptor = open(absl::StrCat(path, "/", kManifestName).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return false;
  const bool held = flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  close(descriptor);
  return held;
}

}  // namespace

absl::StatusOr<std::vector<CheckpointInfo>> ListCheckpoints(const std::string& root) {
  std::vector<CheckpointInfo> found;
  std::error_code error;
  if (!fs::exists(root, error) && !error) return found;
  const fs::path link = fs::path(root) / kLatestName;
  const std::string latest = fs::read_symlink(link, error).filename().string();
  // None, or something else in its place; what is no folder is reported below. Who cannot tell which is the latest must not prune it.
  const bool is_none =
      error == std::errc::no_such_file_or_directory || error == std::errc::invalid_argument || error == std::errc::not_a_directory;
  if (error && !is_none) return base::FileError(error.value(), "read the link", link.string());
  fs::directory_iterator entry(root, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    const std::optional<int64_t> step = ParseStepFolderName(name);
    std::error_code ignored;
    // A link that leads nowhere may stand for a disk that is not mounted: what it names counts as one that cannot be read.
    if (!step || (!entry->is_directory(ignored) && !entry->is_symlink(ignored))) continue;
    CheckpointInfo info = {.path = entry->path().string(), .step = *step, .is_latest = name == latest};
    Inspect(info);
    found.push_back(std::move(info));
  }
  if (error) return base::FileError(error.value(), "list", root);
  std::sort(found.begin(), found.end(),
            [](const CheckpointInfo& a, const CheckpointInfo& b) { return std::tie(a.sequence, a.step) > std::tie(b.sequence, b.step); });
  return found;
}

absl::Status CheckLatestIsNoFolder(const std::string& root) {
  const std::string latest = absl::StrCat(root, "/", kLatestName);
  std::error_code error;
  if (!fs::is_directory(fs::symlink_status(latest, error))) return absl::OkStatus();
  std::string remedy = "move it away";
  if (const absl::StatusOr<Manifest> own = LoadManifest(latest); own.ok()) {
    const std::string step = absl::StrCat(root, "/", StepFolderName(own->step));
    const absl::StatusOr<Manifest> original = LoadManifest(step);
    if (original.ok() && FormatManifest(*original) == FormatManifest(*own)) {
      remedy = absl::StrCat("remove it, as ", step, " is the same (rm -r ", latest, ")");
    } else if (!fs::exists(fs::symlink_status(step, error))) {
      remedy = absl::StrCat("give it the name of its step (mv ", latest, " ", step, ")");
    }
  }
  return absl::FailedPreconditionError(absl::StrCat(
      latest, " is a folder where the link to the newest checkpoint belongs, as a copy that follows links leaves it; ", remedy));
}

absl::StatusOr<std::map<std::string, std::set<std::string>>> SiteFoldersOf(const std::string& root) {
  std::map<std::string, std::set<std::string>> folders;
  std::error_code error;
  fs::directory_iterator entry(root, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string path = entry->path().string(), name = entry->path().filename().string();
    if (!ParseStepFolderName(absl::string_view(name).substr(0, name.find('.')))) continue;
    std::error_code unknown;
    if (!fs::is_directory(path, unknown) && !unknown) continue;  // no checkpoint, or gone by now
    const absl::StatusOr<Manifest> manifest = LoadManifest(path);
    std::error_code ignored;
    if (absl::IsNotFound(manifest.status()) && !fs::exists(fs::symlink_status(path, ignored))) continue;
    if (!manifest.ok()) return manifest.status();
    for (const FileEntry& file : manifest->files) {
      if (!file.site.empty()) folders[file.site].insert(file.site_folder);
    }
  }
  if (error) return base::FileError(error.value(), "list", root);
  return folders;
}

absl::StatusOr<NewestCheckpoint> FindLatestComplete(const std::string& root, const CheckpointFilter& eligible, DamagedCopies copies) {
  FUSIONLLM_ASSIGN_OR_RETURN(const std::vector<CheckpointInfo> all, ListCheckpoints(root));
  NewestCheckpoint result;
  for (const CheckpointInfo& info : all) {
    if (eligible.unusable.contains(info.path)) continue;
    // What has no manifest that could be read may be newer than any: it is reported at least.
    const bool may_be_newest = info.sequence == 0 && !info.problem.empty();
    if (!may_be_newest && (result.path.has_value() || info.sequence < eligible.first_sequence)) continue;
    std::string problem = info.problem;
    if (problem.empty()) problem = std::string(VerifyToRestore(info.path, copies).message());
    if (problem.empty()) {
      result.path = info.path;
      continue;
    }
    result.skipped.push_back({info.path, problem, info.sequence, info.newer_format});
  }
  return result;
}

absl::Status PruneCheckpoints(const std::string& root, int64_t keep, int64_t first_sequence) {
  if (keep <= 0) return absl::OkStatus();
  FUSIONLLM_ASSIGN_OR_RETURN(const std::vector<CheckpointInfo> all, ListCheckpoints(root));
  int64_t kept = 0;
  for (const CheckpointInfo& info : all) {
    if (!info.problem.empty() || info.sequence < first_sequence) continue;
    if (++kept <= keep || info.is_latest) continue;
    if (IsBeingRead(info.path)) continue;
    const std::string aside = absl::StrCat(root, "/.", StepFolderName(info.step), ".old.partial");
    FUSIONLLM_RETURN_IF_ERROR(base::RemoveTree(aside));
    FUSIONLLM_RETURN_IF_ERROR(base::Rename(info.path, aside));
    FUSIONLLM_RETURN_IF_ERROR(base::RemoveTree(aside));
  }
  return absl::OkStatus();
}

}  // namespace fusionllm::checkpoint
