// Reading parameters and state back, from whatever holds them: a checkpoint, any number of shards, or files of other makers.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/checkpoint/manifest.h"
#include "lib/checkpoint/safetensors.h"

namespace fusionllm::checkpoint {

struct StoredTensor {
  const SafetensorsFile* file = nullptr;
  const TensorEntry* entry = nullptr;
};

// What to make of files that the manifest says lie in other sites, where they are not in the checkpoint's folder besides.
enum class SiteFilesPolicy { kReject, kSkip };

// Tensors by name across all files. Movable; reads may run on several threads at once. As long as a reader of a checkpoint lives, the
// checkpoint is not pruned (a shared flock(2) on its manifest).
class CheckpointReader {
 public:
  // `path`: a checkpoint folder or the link `latest`; a folder of checkpoints (its `latest` is meant, or, where that is missing or leads
  // nowhere, its newest whole one, for which all files are read); a folder as Hugging Face has it (model.safetensors, else
  // model.safetensors.index.json); or a single .safetensors file. Blocks; else reads manifests and headers only.
  // A file of others that has a family's tensors under other names than the family's parameters (models::Family::TensorNameMapFor: a GPT-2
  // as published has wte.weight for transformer.wte.weight) is read under the names of the parameters. Errors: NotFound; InvalidArgument
  // for a folder that is none of these, a broken file, a tensor in two files of which no index says one, or an index that disagrees with
  // its shards; Unimplemented as SafetensorsFile::Open; DataLoss when a file has not the size that the manifest says; FailedPrecondition
  // for a checkpoint with files that lie in other sites, naming files and sites, unless these are to be left out. Messages name the file.
  static absl::StatusOr<CheckpointReader> Open(const std::string& path, SiteFilesPolicy site_files = SiteFilesPolicy::kReject);
  CheckpointReader(CheckpointReader&&) noexcept;
  CheckpointReader& operator=(CheckpointReader&&) noexcept;
  ~CheckpointReader();

  const std::string& path() const { return path_; }                                // what was opened, after `latest`
  const std::optional<Manifest>& manifest() const { return manifest_; }            // nullopt: not a checkpoint of ours
  const std::map<std::string, StoredTensor>& tensors() const { return tensors_; }  // parameters, optimizer state and residuals, by name
  // That were left out; their tensors are not among tensors().
  const std::vector<FileEntry>& files_in_other_sites() const { return files_in_other_sites_; }
  bool Contains(absl::string_view name) const { return tensors_.contains(std::string(name)); }
  bool IsParameter(const StoredTensor& tensor) const;  // not optimizer state or a residual

  // As SafetensorsFile::Read: the same shape, and the same dtype or f32 from f16 and bf16. NotFound for a name that no file has.
  absl::Status Read(absl::string_view name, const tensor::TensorView& into) const;

 private:
  CheckpointReader() = default;
  absl::Status OpenFolder(const std::string& folder, SiteFilesPolicy site_files);
  absl::Status OpenCheckpoint(const std::string& folder, SiteFilesPolicy site_files);
  absl::Status OpenIndexed(const std::string& folder);
  // Of a tensor that `weight_map` has, what stands in another file than it says is passed over.
  absl::Status AddFile(const std::string& path, const std::map<std::string, std::string>& weight_map = {});
  void NameAsParameters();

  std::string path_;
  std::optional<Manifest> manifest_;
  std::vector<FileEntry> files_in_other_sites_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, StoredTensor> tensors_;
  int lock_ = -1;
};

// The files that lie in other sites and not, with the size the manifest says, in the checkpoint's folder besides.
std::vector<FileEntry> FilesInOtherSites(const std::string& folder, const Manifest& manifest);
// "model-00002-of-00002.safetensors and 1 more in site paris"; empty: none.
std::string DescribeFilesInOtherSites(const std::vector<FileEntry>& files);

// Whether every file of a checkpoint folder, but for those elsewhere, is there with the size the manifest says. DataLoss naming the first
// that is not.
absl::Status CheckFileSizes(const std::string& folder, const Manifest& manifest);

// Whether the checkpoint (any path that Open takes) is whole: sizes and checksums of all files, every header, every tensor of the index.
// Reads everything. What others made has no manifest, so no checksums, and only the structure is checked.
// DataLoss lists every file that is wrong, with the reason (PermissionDenied where all of these may not be read), or says that a folder of
// ours has lost its manifest or cannot be understood by it; other errors are those of Open: Unimplemented for what may be whole and is not
// supported here. With kSkip: whether all that is here is whole.
absl::Status VerifyCheckpoint(const std::string& path, SiteFilesPolicy site_files = SiteFilesPolicy::kReject);

// Likewise with kSkip, for who restores from it and can ask sites: where nothing else is wrong, files that were brought here from sites
// and are damaged here are removed, so that they count as elsewhere again; with kKeep they stay, for who only asks.
enum class DamagedCopies { kRemove, kKeep };
absl::Status VerifyToRestore(const std::string& path, DamagedCopies copies = DamagedCopies::kRemove);

}  // namespace fusionllm::checkpoint
