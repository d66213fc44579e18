#include "lib/archive/fetch_latest.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/checkpoint/manifest.h"

namespace fusionllm::archive {
namespace {

// Newest ones of a place that are looked at until one is whole.
constexpr int kMaxCandidates = 16;

// What the place is not to blame for.
bool IsOurs(const absl::Status& status) {
  return absl::IsResourceExhausted(status) || absl::IsCancelled(status) || absl::IsInternal(status);
}

}  // namespace

absl::StatusOr<LatestCheckpoint> FetchLatest(const std::string& root, const std::vector<MirrorTarget*>& places,
                                             const checkpoint::CheckpointFilter& eligible) {
  FUSIONLLM_ASSIGN_OR_RETURN(const checkpoint::NewestCheckpoint local, checkpoint::FindLatestComplete(root, eligible));
  LatestCheckpoint newest{.path = local.path, .skipped = local.skipped};
  int64_t sequence = -1;
  if (local.path) {
    FUSIONLLM_ASSIGN_OR_RETURN(const checkpoint::Manifest manifest, checkpoint::LoadManifest(*local.path));
    sequence = manifest.sequence;
  }
  absl::Status not_asked;
  for (MirrorTarget* const place : places) {
    const absl::StatusOr<std::vector<std::string>> names = place->List();
    if (IsOurs(names.status())) return names.status();
    if (!names.ok()) {
      not_asked.Update(names.status());
      newest.skipped.push_back({.path = place->name(), .reason = absl::StrCat("it could not be asked: ", names.status().message())});
      continue;
    }
    int tried = 0;
    for (const std::string& name : *names) {
      if (++tried > kMaxCandidates) break;
      const absl::StatusOr<checkpoint::Manifest> manifest = place->Describe(name);
      const std::optional<int64_t> its = manifest.ok() ? manifest->sequence : checkpoint::SequenceOfNewerFormat(manifest.status());
      if (its && (*its <= sequence || *its < eligible.first_sequence)) break;
      const absl::StatusOr<std::string> path = manifest.ok() ? place->Fetch(name, root) : manifest.status();
      if (path.ok()) {
        newest.path = *path;
        newest.from = place->name();
        sequence = manifest->sequence;
        break;
      }
      if (IsOurs(path.status())) return path.status();
      if (absl::IsUnavailable(path.status())) not_asked.Update(path.status());
      newest.skipped.push_back({.path = absl::StrCat(name, " of ", place->name()),
                                .reason = std::string(path.status().message()),
                                .sequence = its.value_or(0),
                                .newer_format = absl::IsUnimplemented(manifest.status())});
    }
  }
  if (!newest.path && !not_asked.ok()) return not_asked;
  // A place had something newer still.
  std::erase_if(newest.skipped,
                [&](const auto& skipped) { return skipped.newer_format && 0 < skipped.sequence && skipped.sequence < sequence; });
  return newest;
}

absl::StatusOr<int64_t> LatestSequence(const std::vector<MirrorTarget*>& places) {
  int64_t sequence = 0;
  for (MirrorTarget* const place : places) {
    FUSIONLLM_ASSIGN_OR_RETURN(const std::vector<std::string> names, place->List());
    for (const std::string& name : names) {
      const absl::StatusOr<checkpoint::Manifest> manifest = place->Describe(name);
      if (absl::IsUnavailable(manifest.status())) return manifest.status();
      const std::optional<int64_t> its = manifest.ok() ? manifest->sequence : checkpoint::SequenceOfNewerFormat(manifest.status());
      if (!its) continue;
      sequence = std::max(sequence, *its);
      break;
    }
  }
  return sequence;
}

}  // namespace fusionllm::archive
