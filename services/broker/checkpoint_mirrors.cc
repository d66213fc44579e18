#include "services/broker/checkpoint_mirrors.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "lib/archive/fetch_headers.h"
#include "lib/archive/folder_mirror_target.h"
#include "lib/archive/object_store_mirror_target.h"
#include "lib/base/object_uri.h"
#include "lib/base/status_macros.h"
#include "lib/checkpoint/catalog.h"
#include "lib/checkpoint/layout.h"
#include "lib/checkpoint/reader.h"
#include "lib/objectstore/fetch.h"
#include "services/checkpoint_directory.h"

namespace fusionllm::services {
void CheckpointMirrors::Add(const std::string& path, bool first, int64_t keep, int64_t every_steps, const std::string& output_directory,
                            const objectstore::StoreSettings& settings) {
  const auto make = [&](archive::Transfer transfer) -> std::unique_ptr<archive::MirrorTarget> {
    transfer.progress = [this, moved = std::move(transfer.progress)](int64_t bytes) {
      moved(bytes);
      if (progress_) progress_(bytes);
    };
    if (!base::IsUri(path)) return std::make_unique<archive::FolderMirrorTarget>(CheckpointDirectory(path, output_directory), transfer);
    return std::make_unique<archive::ObjectStoreMirrorTarget>(
        *base::ParseObjectUri(path), settings,
        objectstore::StoreOptions{.progress = transfer.progress, .stop = transfer.stop, .retried = transfer.retried});
  };
  archive::MirrorOptions options{.keep = keep, .every_steps = every_steps};
  options.on_event = [this, first](const archive::MirrorEvent& news) {
    if (first && news.copied && kept_) kept_(news.step);
    if (emit_) emit_({.reason = news.copied ? "CheckpointCopied" : "CheckpointCopyFailed", .step = news.step, .message = news.message});
  };
  options.retried = [this](const std::string& sentence) {
    if (emit_) emit_(StoreRetried(sentence));
  };
  copies_.push_back({.first = first, .mirror = std::make_unique<archive::Mirror>(make, std::move(options))});
}

absl::StatusOr<std::unique_ptr<CheckpointMirrors>> CheckpointMirrors::Make(const job::FusionJob& job, const std::string& output_directory,
                                                                           const objectstore::Environment& environment, Progress progress,
                                                                           EventSink emit) {
  std::unique_ptr<CheckpointMirrors> mirrors(new CheckpointMirrors());
  mirrors->progress_ = std::move(progress);
  mirrors->emit_ = std::move(emit);
  if (!job.spec.checkpoint.has_value()) return mirrors;
  const job::Checkpoint& checkpoint = *job.spec.checkpoint;
  objectstore::StoreSettings settings;
  const bool replica_in_store = checkpoint.replica.has_value() && base::IsUri(checkpoint.replica->path);
  if (base::IsUri(checkpoint.path) || replica_in_store) {
    FUSIONLLM_ASSIGN_OR_RETURN(settings, objectstore::SettingsFrom(environment));
  }
  if (base::IsUri(checkpoint.path)) {
    FUSIONLLM_RETURN_IF_ERROR(base::ParseObjectUri(checkpoint.path).status());
    mirrors->Add(checkpoint.path, /*first=*/true, checkpoint.keep, 0, output_directory, settings);
  }
  if (checkpoint.replica.has_value()) {
    if (replica_in_store) FUSIONLLM_RETURN_IF_ERROR(base::ParseObjectUri(checkpoint.replica->path).status());
    mirrors->Add(checkpoint.replica->path, /*first=*/false, checkpoint.keep, checkpoint.replica->every_steps, output_directory, settings);
  }
  return mirrors;
}

std::vector<archive::MirrorTarget*> CheckpointMirrors::targets() const {
  std::vector<archive::MirrorTarget*> places;
  for (const Copies& copies : copies_) places.push_back(&copies.mirror->place());
  return places;
}

void CheckpointMirrors::Start(int64_t first_sequence, EventSink emit, std::function<void(int64_t step)> kept,
                              const archive::Mirror::Gather& gather) {
  emit_ = std::move(emit);
  kept_ = std::move(kept);
  progress_ = nullptr;
  for (const Copies& copies : copies_) {
    copies.mirror->RemoveFrom(first_sequence);
    copies.mirror->GatherBy(gather);
  }
}

void CheckpointMirrors::OfferAll(const std::string& directory, int64_t first_sequence) {
  if (copies_.empty()) return;
  const auto all = checkpoint::ListCheckpoints(directory);
  if (!all.ok()) return;  // said where it is written to
  for (auto info = all->rbegin(); info != all->rend(); ++info) {
    if (info->problem.empty() && info->sequence >= first_sequence) Offer(info->path, info->step);
  }
}

void CheckpointMirrors::Offer(const std::string& folder, int64_t step) {
  for (const Copies& copies : copies_) copies.mirror->Offer(folder, step);
}

std::string CheckpointMirrors::DescribeLag() const {
  std::vector<std::string> names;
  for (const Copies& copies : copies_) {
    if (copies.mirror->behind()) names.push_back(copies.mirror->place().name());
  }
  return names.empty() ? "" : absl::StrCat("copying checkpoints to ", absl::StrJoin(names, " and "));
}

absl::Status CheckpointMirrors::Finish(absl::Duration timeout, const std::stop_token& stop) {
  absl::Status result;
  for (const Copies& copies : copies_) {
    const absl::Status status = copies.mirror->Finish(timeout, stop);
    if (status.ok()) continue;
    const std::string& name = copies.mirror->place().name();
    const std::string sentence =
        absl::StrCat("the last checkpoint is whole in the run's folder, and not in ", name, ": ", std::string(status.message()));
    if (copies.first) {
      result = absl::UnavailableError(sentence);
    } else if (emit_) {
      emit_({.reason = "CheckpointCopyFailed", .message = sentence});
    }
  }
  return result;
}

broker::EmitEvent StoreRetried(const std::string& sentence) { return {.reason = "StoreRetried", .message = sentence}; }

absl::StatusOr<std::string> FetchCheckpoint(const std::string& text, const std::string& scratch,
                                            const objectstore::Environment& environment, const CheckpointMirrors::Progress& progress,
                                            const CheckpointMirrors::EventSink& emit) {
  FUSIONLLM_ASSIGN_OR_RETURN(base::ObjectUri uri, base::ParseObjectUri(text));
  FUSIONLLM_ASSIGN_OR_RETURN(objectstore::StoreSettings settings, objectstore::SettingsFrom(environment));
  objectstore::ObjectStore store(std::move(settings), {.progress = progress, .retried = [&emit](const std::string& sentence) {
                                                         if (emit) emit(StoreRetried(sentence));
                                                       }});
  FUSIONLLM_ASSIGN_OR_RETURN(uri, archive::FollowLatest(store, uri));
  FUSIONLLM_ASSIGN_OR_RETURN(std::string path, objectstore::Fetch(store, uri, scratch));
  if (const absl::Status whole = checkpoint::VerifyCheckpoint(path); !whole.ok()) {
    return absl::Status(whole.code(), absl::StrCat(base::ToString(uri), ", as it was fetched: ", whole.message()));
  }
  return path;
}

}  // namespace fusionllm::services
