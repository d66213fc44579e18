// Copies of checkpoints in an object store:
//
//   PREFIX/latest                       a name, "step-000050" and a line feed: the newest
//   PREFIX/step-000050/manifest.json    written last: without it there is no checkpoint
//   PREFIX/step-000050/...              its files, as in a folder (lib/checkpoint/layout.h)
//   PREFIX/step-000050.2/...            another run's of the same step
//
// So a copy of a prefix, by any tool, is a folder of checkpoints. An object store renames nothing: files of a checkpoint whose transfer was
// interrupted lie there until that step is saved again. Newest means made last, as the store's clock has it.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lib/archive/mirror_target.h"
#include "lib/base/object_uri.h"
#include "lib/objectstore/object_store.h"

namespace fusionllm::archive {

class ObjectStoreMirrorTarget : public MirrorTarget {
 public:
  // The store's options have the transfer.
  ObjectStoreMirrorTarget(base::ObjectUri uri, objectstore::StoreSettings settings, objectstore::StoreOptions options)
      : uri_(std::move(uri)), name_(base::ToString(uri_)), store_(std::move(settings), std::move(options)) {}

  const std::string& name() const override { return name_; }
  absl::StatusOr<std::string> Put(const std::string& folder, const checkpoint::Manifest& manifest) override;
  absl::StatusOr<std::vector<std::string>> List() override;
  absl::StatusOr<checkpoint::Manifest> Describe(const std::string& checkpoint) override;
  absl::StatusOr<std::string> Fetch(const std::string& checkpoint, const std::string& root) override;
  absl::Status Prune(int64_t keep, int64_t first_sequence) override;

 private:
  struct Slot {
    std::string name;
    bool taken = false;  // by this very checkpoint
  };
  absl::StatusOr<Slot> FindSlot(const checkpoint::Manifest& manifest, const std::string& text);
  absl::StatusOr<std::string> Latest();  // empty: none
  absl::Status PointLatest(const std::string& checkpoint);
  absl::Status RemoveUnlisted(const std::string& checkpoint, const checkpoint::Manifest& manifest);
  absl::Status Remove(const std::string& checkpoint);
  base::ObjectUri Object(const std::string& checkpoint, const std::string& file) const;
  std::string KeyPrefix(const std::string& checkpoint) const;

  const base::ObjectUri uri_;
  const std::string name_;
  objectstore::ObjectStore store_;
  std::map<std::string, std::string> etags_;                                             // of manifests, by name, as last listed
  std::map<std::string, std::pair<std::string, checkpoint::Manifest>> known_manifests_;  // with their ETags, by name
};

}  // namespace fusionllm::archive
