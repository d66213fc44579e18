// Copies of checkpoints in another folder: a second disk, a network file system, a volume.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lib/archive/mirror_target.h"

namespace fusionllm::archive {

class FolderMirrorTarget : public MirrorTarget {
 public:
  explicit FolderMirrorTarget(std::string root, Transfer transfer = {}) : root_(std::move(root)), transfer_(std::move(transfer)) {}

  const std::string& name() const override { return root_; }
  absl::StatusOr<std::string> Put(const std::string& folder, const checkpoint::Manifest& manifest) override;
  absl::StatusOr<std::vector<std::string>> List() override;
  absl::StatusOr<checkpoint::Manifest> Describe(const std::string& checkpoint) override;
  absl::StatusOr<std::string> Fetch(const std::string& checkpoint, const std::string& root) override;
  absl::Status Prune(int64_t keep, int64_t first_sequence) override;

 private:
  absl::StatusOr<std::string> Copy(const std::string& folder, const checkpoint::Manifest& manifest, const std::string& root) const;

  const std::string root_;
  const Transfer transfer_;
};

}  // namespace fusionllm::archive
