#include "lib/archive/object_store_mirror_target.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "lib/base/output_file.h"
#include "lib/base/status_macros.h"
#include "lib/checkpoint/layout.h"
#include "lib/checkpoint/writer.h"

namespace fusionllm::archive {
namespace {

constexpr size_t kMaxObjects = 10'000'000;
constexpr int kMaxCheckpointsPerStep = 1000;

// "step-000050" and "step-000050.2".
std::optional<int64_t> StepOf(absl::string_view name) {
  const size_t dot = name.find('.');
  int number = 0;
  if (dot != absl::string_view::npos && (!absl::SimpleAtoi(name.substr(dot + 1), &number) || number < 2)) return std::nullopt;
  return checkpoint::ParseStepFolderName(name.substr(0, dot));
}

std::string SlotName(int64_t step, int number) {
  return number == 1 ? checkpoint::StepFolderName(step) : absl::StrCat(checkpoint::StepFolderName(step), ".", number);
}

}  // namespace

base::ObjectUri ObjectStoreMirrorTarget::Object(const std::string& checkpoint, const std::string& file) const {
  return base::JoinUri(uri_, absl::StrCat(checkpoint, "/", file));
}

std::string ObjectStoreMirrorTarget::KeyPrefix(const std::string& checkpoint) const {
  if (checkpoint.empty()) return uri_.key.empty() ? "" : absl::StrCat(uri_.key, "/");
  return absl::StrCat(base::JoinUri(uri_, checkpoint).key, "/");
}

absl::StatusOr<ObjectStoreMirrorTarget::Slot> ObjectStoreMirrorTarget::FindSlot(const checkpoint::Manifest& manifest,
                                                                                const std::string& text) {
  for (int number = 1; number <= kMaxCheckpointsPerStep; ++number) {
    std::string name = SlotName(manifest.step, number);
    const absl::StatusOr<std::string> there = store_.Read(Object(name, checkpoint::kManifestName), checkpoint::kMaxManifestBytes);
    if (absl::IsNotFound(there.status())) return Slot{.name = std::move(name)};
    if (!there.ok()) return there.status();
    if (*there == text) return Slot{.name = std::move(name), .taken = true};
  }
  return absl::ResourceExhaustedError(absl::StrCat(name_, " has ", kMaxCheckpointsPerStep, " checkpoints of step ", manifest.step));
}

absl::StatusOr<std::string> ObjectStoreMirrorTarget::Latest() {
  const absl::StatusOr<std::string> text = store_.Read(base::JoinUri(uri_, checkpoint::kLatestName), checkpoint::kMaxLatestBytes);
  if (absl::IsNotFound(text.status()) || absl::IsInvalidArgument(text.status())) return "";
  if (!text.ok()) return text.status();
  std::string name(absl::StripSuffix(*text, "\n"));
  return StepOf(name) ? name : "";
}

absl::Status ObjectStoreMirrorTarget::PointLatest(const std::string& checkpoint) {
  return store_.Write(base::JoinUri(uri_, checkpoint::kLatestName), absl::StrCat(checkpoint, "\n"));
}

absl::Status ObjectStoreMirrorTarget::RemoveUnlisted(const std::string& checkpoint, const checkpoint::Manifest& manifest) {
  std::set<std::string> listed;
  for (const checkpoint::FileEntry& file : manifest.files) listed.insert(Object(checkpoint, file.name).key);
  FUSIONLLM_ASSIGN_OR_RETURN(const auto objects, store_.List(uri_.bucket, KeyPrefix(checkpoint), kMaxObjects));
  for (const objectstore::ObjectInfo& object : objects) {
    if (!listed.contains(object.key)) FUSIONLLM_RETURN_IF_ERROR(store_.Remove({.bucket = uri_.bucket, .key = object.key}));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ObjectStoreMirrorTarget::Put(const std::string& folder, const checkpoint::Manifest& manifest) {
  const std::string text = checkpoint::FormatManifest(manifest);
  FUSIONLLM_ASSIGN_OR_RETURN(const Slot slot, FindSlot(manifest, text));
  const std::string uri = base::ToString(base::JoinUri(uri_, slot.name));
  if (slot.taken) {
    // Its writer may have been interrupted before its last word.
    FUSIONLLM_ASSIGN_OR_RETURN(const std::string latest, Latest());
    if (latest == slot.name) return uri;
    const absl::StatusOr<checkpoint::Manifest> newest = latest.empty() ? absl::NotFoundError("") : Describe(latest);
    if (!newest.ok() || newest->sequence < manifest.sequence) FUSIONLLM_RETURN_IF_ERROR(PointLatest(slot.name));
    return uri;
  }
  FUSIONLLM_RETURN_IF_ERROR(RemoveUnlisted(slot.name, manifest));
  for (const checkpoint::FileEntry& file : manifest.files) {
    FUSIONLLM_RETURN_IF_ERROR(store_.Upload(absl::StrCat(folder, "/", file.name), file.sha256, Object(slot.name, file.name)));
  }
  FUSIONLLM_RETURN_IF_ERROR(store_.Write(Object(slot.name, checkpoint::kManifestName), text));
  FUSIONLLM_RETURN_IF_ERROR(PointLatest(slot.name));
  return uri;
}

absl::StatusOr<std::vector<std::string>> ObjectStoreMirrorTarget::List() {
  const std::string prefix = KeyPrefix("");
  FUSIONLLM_ASSIGN_OR_RETURN(const auto objects, store_.List(uri_.bucket, prefix, kMaxObjects));
  FUSIONLLM_ASSIGN_OR_RETURN(const std::string latest, Latest());
  const std::string manifest = absl::StrCat("/", checkpoint::kManifestName);
  struct Entry {
    std::string modified;
    bool latest;
    int64_t step;
    std::string name;
  };
  std::vector<Entry> entries;
  etags_.clear();
  for (const objectstore::ObjectInfo& object : objects) {
    absl::string_view name = absl::string_view(object.key).substr(prefix.size());
    if (!absl::ConsumeSuffix(&name, manifest)) continue;
    const std::optional<int64_t> step = StepOf(name);
    if (!step) continue;
    entries.push_back({object.last_modified, name == latest, *step, std::string(name)});
    etags_[std::string(name)] = object.etag;
  }
  // Some stores' clocks tick by the second: of those that were made within one the latest is known.
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.modified, a.latest, a.step, a.name) > std::tie(b.modified, b.latest, b.step, b.name);
  });
  std::vector<std::string> names;
  for (Entry& entry : entries) names.push_back(std::move(entry.name));
  return names;
}

absl::StatusOr<checkpoint::Manifest> ObjectStoreMirrorTarget::Describe(const std::string& checkpoint) {
  const auto etag = etags_.find(checkpoint);
  const auto known = known_manifests_.find(checkpoint);
  if (etag != etags_.end() && known != known_manifests_.end() && known->second.first == etag->second) return known->second.second;
  const base::ObjectUri uri = Object(checkpoint, checkpoint::kManifestName);
  FUSIONLLM_ASSIGN_OR_RETURN(const std::string text, store_.Read(uri, checkpoint::kMaxManifestBytes));
  absl::StatusOr<checkpoint::Manifest> manifest = checkpoint::ParseManifest(text);
  if (!manifest.ok()) return checkpoint::ManifestError(base::ToString(uri), manifest.status());
  if (etag != etags_.end()) known_manifests_[checkpoint] = {etag->second, *manifest};
  return manifest;
}

absl::StatusOr<std::string> ObjectStoreMirrorTarget::Fetch(const std::string& checkpoint, const std::string& root) {
  FUSIONLLM_ASSIGN_OR_RETURN(const checkpoint::Manifest manifest, Describe(checkpoint));
  FUSIONLLM_RETURN_IF_ERROR(checkpoint::AbandonCheckpoint(root, manifest.step));
  const std::string staging = checkpoint::StagingFolder(root, manifest.step);
  FUSIONLLM_RETURN_IF_ERROR(base::MakeFolders(staging));
  absl::Status status;
  for (const checkpoint::FileEntry& file : manifest.files) {
    const base::ObjectUri uri = Object(checkpoint, file.name);
    const auto fetched = store_.Fetch(uri, file.bytes, "", absl::StrCat(staging, "/", file.name));
    status = fetched.status();
    // Of a manifest that promises it.
    if (absl::IsNotFound(status)) status = absl::DataLossError(status.message());
    if (status.ok() && fetched->sha256 != file.sha256) {
      status = absl::DataLossError(absl::StrCat(base::ToString(uri), " has the checksum ", fetched->sha256, " instead of ", file.sha256));
    }
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

absl::Status ObjectStoreMirrorTarget::Remove(const std::string& checkpoint) {
  // First what makes it one.
  FUSIONLLM_RETURN_IF_ERROR(store_.Remove(Object(checkpoint, checkpoint::kManifestName)));
  FUSIONLLM_ASSIGN_OR_RETURN(const auto objects, store_.List(uri_.bucket, KeyPrefix(checkpoint), kMaxObjects));
  for (const objectstore::ObjectInfo& object : objects) {
    FUSIONLLM_RETURN_IF_ERROR(store_.Remove({.bucket = uri_.bucket, .key = object.key}));
  }
  return absl::OkStatus();
}

absl::Status ObjectStoreMirrorTarget::Prune(int64_t keep, int64_t first_sequence) {
  if (keep <= 0) return absl::OkStatus();
  FUSIONLLM_ASSIGN_OR_RETURN(const std::vector<std::string> names, List());
  int64_t kept = 0;
  for (const std::string& name : names) {
    const absl::StatusOr<checkpoint::Manifest> manifest = Describe(name);
    if (absl::IsUnavailable(manifest.status()) || absl::IsCancelled(manifest.status())) return manifest.status();
    if (!manifest.ok() || manifest->sequence < first_sequence) continue;
    if (++kept > keep) FUSIONLLM_RETURN_IF_ERROR(Remove(name));
  }
  return absl::OkStatus();
}

}  // namespace fusionllm::archive
