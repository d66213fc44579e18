#include "lib/archive/folder_mirror_target.h"

#include <algorithm>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "lib/base/output_file.h"
#include "lib/base/source_file.h"
#include "lib/base/status_macros.h"
#include "lib/checkpoint/catalog.h"
#include "lib/checkpoint/hashed_file.h"
#include "lib/checkpoint/layout.h"
#include "lib/checkpoint/writer.h"

namespace fusionllm::archive {
namespace {

constexpr size_t kPieceBytes = 1 << 20;

absl::Status CopyFile(const std::string& from, const std::string& to, const checkpoint::FileEntry& entry, const Transfer& transfer) {
  FUSIONLLM_ASSIGN_OR_RETURN(const base::SourceFile source, base::SourceFile::Open(from, /*keep_open=*/true));
  if (source.size() != entry.bytes) {
    return absl::DataLossError(absl::StrCat(from, " has ", source.size(), " bytes instead of ", entry.bytes));
  }
  FUSIONLLM_ASSIGN_OR_RETURN(checkpoint::HashedFile file, checkpoint::HashedFile::Create(to));
  std::vector<std::byte> piece(kPieceBytes);
  for (int64_t at = 0; at < source.size();) {
    if (transfer.stop.stop_requested()) return absl::CancelledError("the transfer was stopped");
    const std::span<std::byte> into = std::span(piece).first(std::min<size_t>(kPieceBytes, static_cast<size_t>(source.size() - at)));
    FUSIONLLM_RETURN_IF_ERROR(source.ReadAt(at, into));
    FUSIONLLM_RETURN_IF_ERROR(file.Write(into));
    at += static_cast<int64_t>(into.size());
    if (transfer.progress) transfer.progress(static_cast<int64_t>(into.size()));
  }
  FUSIONLLM_ASSIGN_OR_RETURN(const checkpoint::WrittenFile written, file.Finish());
  if (written.sha256 != entry.sha256) {
    return absl::DataLossError(absl::StrCat(from, " has the checksum ", written.sha256, " instead of ", entry.sha256));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> FolderMirrorTarget::Copy(const std::string& folder, const checkpoint::Manifest& manifest,
                                                     const std::string& root) const {
  FUSIONLLM_RETURN_IF_ERROR(checkpoint::AbandonCheckpoint(root, manifest.step));
  const std::string staging = checkpoint::StagingFolder(root, manifest.step);
  FUSIONLLM_RETURN_IF_ERROR(base::MakeFolders(staging));
  absl::Status status;
  for (const checkpoint::FileEntry& file : manifest.files) {
    status = CopyFile(absl::StrCat(folder, "/", file.name), absl::StrCat(staging, "/", file.name), file, transfer_);
    if (!status.ok()) break;
  }
  if (status.ok()) {
    absl::StatusOr<std::string> installed = checkpoint::InstallCheckpoint(root, manifest);
    if (installed.ok()) return installed;
    status = installed.status();
  }
  checkpoint::AbandonCheckpoint(root, manifest.step).IgnoreError();  // the first error is the one to tell
  return status;
}

absl::StatusOr<std::string> FolderMirrorTarget::Put(const std::string& folder, const checkpoint::Manifest& manifest) {
  const std::string target = absl::StrCat(root_, "/", checkpoint::StepFolderName(manifest.step));
  const absl::StatusOr<checkpoint::Manifest> there = checkpoint::LoadManifest(target);
  if (there.ok() && checkpoint::FormatManifest(*there) == checkpoint::FormatManifest(manifest)) return target;
  return Copy(folder, manifest, root_);
}

absl::StatusOr<std::vector<std::string>> FolderMirrorTarget::List() {
  FUSIONLLM_ASSIGN_OR_RETURN(const std::vector<checkpoint::CheckpointInfo> all, checkpoint::ListCheckpoints(root_));
  std::vector<std::string> names;
  for (const checkpoint::CheckpointInfo& info : all) names.push_back(info.path);
  return names;
}

absl::StatusOr<checkpoint::Manifest> FolderMirrorTarget::Describe(const std::string& checkpoint) {
  return checkpoint::LoadManifest(checkpoint);
}

absl::StatusOr<std::string> FolderMirrorTarget::Fetch(const std::string& checkpoint, const std::string& root) {
  FUSIONLLM_ASSIGN_OR_RETURN(const checkpoint::Manifest manifest, checkpoint::LoadManifest(checkpoint));
  return Copy(checkpoint, manifest, root);
}

absl::Status FolderMirrorTarget::Prune(int64_t keep, int64_t first_sequence) {
  return checkpoint::PruneCheckpoints(root_, keep, first_sequence);
}

}  // namespace fusionllm::archive
