#include "services/broker/archives.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "lib/archive/folder_place.h"
#include "lib/archive/start_outline.h"
#include "lib/archive/store_place.h"
#include "lib/base/object_uri.h"
#include "lib/base/status_macros.h"
#include "lib/checkpoint/catalog.h"
#include "lib/checkpoint/layout.h"
#include "lib/checkpoint/reader.h"
#include "lib/objectstore/fetch.h"
#include "services/checkpoint_directory.h"

namespace fusionllm::services {
void Archives::Add(const std::string& path, bool first, int64_t keep, int64_t every_steps, const std::string& output_directory,
                   const objectstore::StoreSettings& settings) {
  const auto make = [&](archive::Transfer transfer) -> std::unique_ptr<archive::Place> {
    transfer.progress = [this, moved = std::move(transfer.progress)](int64_t bytes) {
      moved(bytes);
      if (progress_) progress_(bytes);
    };
    if (!base::IsUri(path)) return std::make_unique<archive::FolderPlace>(CheckpointDirectory(path, output_directory), transfer);
    return std::make_unique<archive::StorePlace>(
        *base::ParseObjectUri(path), settings,
        objectstore::StoreOptions{.progress = transfer.progress, .stop = transfer.stop, .retried = transfer.retried});
  };
  archive::MirrorOptions options{.keep = keep, .every_steps = every_steps};
  options.tell = [this, first](const archive::MirrorNews& news) {
    if (first && news.copied && kept_) kept_(news.step);
    if (tell_) tell_({.reason = news.copied ? "CheckpointCopied" : "CheckpointCopyFailed", .step = news.step, .message = news.message});
  };
  options.retried = [this](const std::string& sentence) {
    if (tell_) tell_(StoreRetried(sentence));
  };
  copies_.push_back({.first = first, .mirror = std::make_unique<archive::Mirror>(make, std::move(options))});
}

absl::StatusOr<std::unique_ptr<Archives>> Archives::Make(const job::FusionJob& job, const std::string& output_directory,
                                                         const objectstore::Environment& environment, Progress progress, Tell tell) {
  std::unique_ptr<Archives> archives(new Archives());
  archives->progress_ = std::move(progress);
  archives->tell_ = std::move(tell);
  if (!job.spec.checkpoint.has_value()) return archives;
  const job::Checkpoint& checkpoint = *job.spec.checkpoint;
  objectstore::StoreSettings settings;
  const bool replica_in_store = checkpoint.replica.has_value() && base::IsUri(checkpoint.replica->path);
  if (base::IsUri(checkpoint.path) || replica_in_store) {
    FUSIONLLM_ASSIGN_OR_RETURN(settings, objectstore::SettingsFrom(environment));
  }
  if (base::IsUri(checkpoint.path)) {
    FUSIONLLM_RETURN_IF_ERROR(base::ParseObjectUri(checkpoint.path).status());
    archives->Add(checkpoint.path, /*first=*/true, checkpoint.keep, 0, output_directory, settings);
  }
  if (checkpoint.replica.has_value()) {
    if (replica_in_store) FUSIONLLM_RETURN_IF_ERROR(base::ParseObjectUri(checkpoint.replica->path).status());
    archives->Add(checkpoint.replica->path, /*first=*/false, checkpoint.keep, checkpoint.replica->every_steps, output_directory, settings);
  }
  return archives;
}

std::vector<archive::Place*> Archives::places() const {
  std::vector<archive::Place*> places;
  for (const Copies& copies : copies_) places.push_back(&copies.mirror->place());
  return places;
}

void Archives::Start(int64_t first_sequence, Tell tell, std::function<void(int64_t step)> kept, const archive::Mirror::Gather& gather) {
  tell_ = std::move(tell);
  kept_ = std::move(kept);
  progress_ = nullptr;
  for (const Copies& copies : copies_) {
    copies.mirror->RemoveFrom(first_sequence);
    copies.mirror->GatherBy(gather);
  }
}

void Archives::OfferAll(const std::string& directory, int64_t first_sequence) {
  if (copies_.empty()) return;
  const auto all = checkpoint::ListCheckpoints(directory);
  if (!all.ok()) return;  // said where it is written to
  for (auto info = all->rbegin(); info != all->rend(); ++info) {
    if (info->problem.empty() && info->sequence >= first_sequence) Offer(info->path, info->step);
  }
}

void Archives::Offer(const std::string& folder, int64_t step) {
  for (const Copies& copies : copies_) copies.mirror->Offer(folder, step);
}

std::string Archives::Behind() const {
  std::vector<std::string> names;
  for (const Copies& copies : copies_) {
    if (copies.mirror->behind()) names.push_back(copies.mirror->place().name());
  }
  return names.empty() ? "" : absl::StrCat("copying checkpoints to ", absl::StrJoin(names, " and "));
}

absl::Status Archives::Finish(absl::Duration patience, const std::stop_token& stop) {
  absl::Status result;
  for (const Copies& copies : copies_) {
    const absl::Status status = copies.mirror->Finish(patience, stop);
    if (status.ok()) continue;
    const std::string& name = copies.mirror->place().name();
    const std::string sentence =
        absl::StrCat("the last checkpoint is whole in the run's folder, and not in ", name, ": ", std::string(status.message()));
    if (copies.first) {
      result = absl::UnavailableError(sentence);
    } else if (tell_) {
      tell_({.reason = "CheckpointCopyFailed", .message = sentence});
    }
  }
  return result;
}

broker::Announce StoreRetried(const std::string& sentence) { return {.reason = "StoreRetried", .message = sentence}; }

absl::StatusOr<std::string> FetchCheckpoint(const std::string& text, const std::string& scratch,
                                            const objectstore::Environment& environment, const Archives::Progress& progress,
                                            const Archives::Tell& tell) {
  FUSIONLLM_ASSIGN_OR_RETURN(base::ObjectUri uri, base::ParseObjectUri(text));
  FUSIONLLM_ASSIGN_OR_RETURN(objectstore::StoreSettings settings, objectstore::SettingsFrom(environment));
  objectstore::ObjectStore store(std::move(settings), {.progress = progress, .retried = [&tell](const std::string& sentence) {
                                                         if (tell) tell(StoreRetried(sentence));
                                                       }});
  FUSIONLLM_ASSIGN_OR_RETURN(uri, archive::FollowLatest(store, uri));
  FUSIONLLM_ASSIGN_OR_RETURN(std::string path, objectstore::Fetch(store, uri, scratch));
  if (const absl::Status whole = checkpoint::VerifyCheckpoint(path); !whole.ok()) {
    return absl::Status(whole.code(), absl::StrCat(base::ToString(uri), ", as it was fetched: ", whole.message()));
  }
  return path;
}

}  // namespace fusionllm::services
