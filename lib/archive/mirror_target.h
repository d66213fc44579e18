// A place where copies of checkpoints are kept: another folder, or a prefix in an object store. Whatever is interrupted when, a checkpoint
// there is whole or absent, and the earlier ones stay.
//
// Every call blocks. Not thread-safe. Errors name the place and say what is wrong there; Cancelled by Transfer::stop.
#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/checkpoint/manifest.h"

namespace fusionllm::archive {

struct Transfer {
  std::function<void(int64_t bytes)> progress;  // called while bytes move, with how many since the last call; may be empty
  std::stop_token stop;
  std::function<void(const std::string& sentence)> retried;  // gets why something is tried again (objectstore::StoreOptions); may be empty
};

class MirrorTarget {
 public:
  virtual ~MirrorTarget() = default;

  // For people: the folder, or the URI.
  virtual const std::string& name() const = 0;

  // Copies the whole checkpoint `folder`, whose manifest is `manifest`, and makes it the newest here. The files go first, the manifest
  // then, what points to the newest last. Another checkpoint of that step stays beside it. Nothing to do where it is here already. Returns
  // where it is now, for people. DataLoss when the folder is damaged.
  virtual absl::StatusOr<std::string> Put(const std::string& folder, const checkpoint::Manifest& manifest) = 0;

  // The checkpoints by names of their own, newest first; empty when there is nothing yet.
  virtual absl::StatusOr<std::vector<std::string>> List() = 0;
  // Errors: those of checkpoint::ParseManifest, too.
  virtual absl::StatusOr<checkpoint::Manifest> Describe(const std::string& checkpoint) = 0;
  // Makes ROOT/step-NNNNNN of it, whole, and `latest` there point to it; what ROOT has of that step is set aside. Returns the path.
  // DataLoss when it is damaged: every file is compared with its checksum.
  virtual absl::StatusOr<std::string> Fetch(const std::string& checkpoint, const std::string& root) = 0;

  // Removes all but the `keep` newest (0: keeps all) of a sequence from `first_sequence` on; others neither count nor go.
  virtual absl::Status Prune(int64_t keep, int64_t first_sequence) = 0;
};

}  // namespace fusionllm::archive
