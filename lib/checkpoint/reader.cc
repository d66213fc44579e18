#include "lib/checkpoint/reader.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <iterator>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/json_text.h"
#include "lib/base/output_file.h"
#include "lib/base/printable_text.h"
#include "lib/base/source_file.h"
#include "lib/base/status_macros.h"
#include "lib/checkpoint/catalog.h"
#include "lib/checkpoint/hashed_file.h"
#include "lib/checkpoint/layout.h"
#include "lib/models/families.h"
#include "nlohmann/json.hpp"

namespace fusionllm::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxIndexBytes = 64 << 20;
constexpr size_t kMaxFilesListed = 4;  // of a site
constexpr absl::string_view kModelEnding = ".safetensors", kIndexEnding = ".index.json";

bool Exists(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// tensor -> file of a model.safetensors.index.json.
absl::StatusOr<std::map<std::string, std::string>> LoadIndex(const std::string& path) {
  FUSIONLLM_ASSIGN_OR_RETURN(const std::string text, base::ReadSmallFile(path, kMaxIndexBytes));
  const nlohmann::json document = base::ParseJson(text);
  if (document.is_discarded()) return absl::InvalidArgumentError(absl::StrCat(path, " is no JSON: is it cut off?"));
  if (!document.is_object() || !document.contains("weight_map") || !document.at("weight_map").is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(path, " has no weight_map"));
  }
  std::map<std::string, std::string> weight_map;
  for (const auto& [tensor, file] : document.at("weight_map").items()) {
    if (!file.is_string()) return absl::InvalidArgumentError(absl::StrCat(path, " gives no file for tensor '", tensor, "'"));
    const auto name = file.get<std::string>();
    // The system would take a name with a NUL for what stands in front of it.
    if (name.empty() || name[0] == '.' || absl::StrContains(name, "/") || base::PrintableText(name) != name) {
      return absl::InvalidArgumentError(absl::StrCat(path, " gives the file '", base::PrintableText(name), "' for tensor '",
                                                     base::PrintableText(tensor), "': a name of a file beside the index is wanted"));
    }
    weight_map[tensor] = name;
  }
  return weight_map;
}

// Every tensor of the index must be in the file that the index says.
absl::Status CheckIndex(const std::string& folder, const std::map<std::string, std::string>& weight_map,
                        const std::map<std::string, StoredTensor>& tensors) {
  for (const auto& [tensor, file] : weight_map) {
    const auto found = tensors.find(tensor);
    if (found == tensors.end() || found->second.file->path() != absl::StrCat(folder, "/", file)) {
      return absl::InvalidArgumentError(
          absl::StrCat(folder, "/", kIndexName, " says that tensor '", tensor, "' is in ", file, ", but it is not"));
    }
  }
  return absl::OkStatus();
}

// Of a folder of checkpoints without a `latest` that leads anywhere; none where it has no checkpoints either.
absl::StatusOr<std::optional<std::string>> NewestWholeOf(const std::string& folder) {
  FUSIONLLM_ASSIGN_OR_RETURN(const NewestCheckpoint newest, FindLatestComplete(folder, {}, DamagedCopies::kKeep));
  if (newest.path.has_value() || newest.skipped.empty()) return newest.path;
  std::vector<std::string> reasons;
  for (const SkippedCheckpoint& skipped : newest.skipped) reasons.push_back(absl::StrCat(skipped.path, ": ", skipped.reason));
  return absl::DataLossError(absl::StrCat("no checkpoint of ", folder, " is whole: ", absl::StrJoin(reasons, "; ")));
}

// A folder called `latest`, where a link belongs, stays at its step when others are saved beside it.
absl::Status CheckIsNewest(const std::string& folder) {
  std::error_code error;
  const fs::path path = fs::canonical(folder, error);
  if (error || path.filename() != kLatestName) return absl::OkStatus();
  const absl::StatusOr<Manifest> own = LoadManifest(path.string());
  if (!own.ok()) return absl::OkStatus();  // reported by who reads it
  FUSIONLLM_ASSIGN_OR_RETURN(const std::vector<CheckpointInfo> all, ListCheckpoints(path.parent_path().string()));
  for (const CheckpointInfo& info : all) {
    if (!info.problem.empty() || info.sequence <= own->sequence) continue;
    return absl::InvalidArgumentError(absl::StrCat(folder, " is no link but a copy of step ", own->step, ", and ", info.path,
                                                   " is newer: name the one that is meant, or remove the copy"));
  }
  return absl::OkStatus();
}

// A folder of checkpoints stands for its latest one, and that of a run for the one of its checkpoints/; without `latest`, which a copy may
// have lost or made a file of, for its newest whole one.
absl::StatusOr<std::string> FollowLatest(const std::string& path) {
  std::error_code error;
  std::string folder = path;
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  const bool bare = !Exists(absl::StrCat(folder, "/", kManifestName)) && !Exists(absl::StrCat(folder, "/", kIndexName));
  for (const char* below : {"", "/checkpoints"}) {
    const std::string latest = absl::StrCat(folder, below, "/", kLatestName);
    if (!bare) break;
    if (fs::is_directory(latest, error)) {
      folder = latest;
      break;
    }
    const bool has_model = Exists(absl::StrCat(folder, below, "/", ShardFileName(ShardKind::kModel, 0, 1)));
    if (has_model || !fs::is_directory(absl::StrCat(folder, below), error)) continue;
    FUSIONLLM_ASSIGN_OR_RETURN(const std::optional<std::string> newest, NewestWholeOf(absl::StrCat(folder, below)));
    if (newest.has_value()) return *newest;
  }
  if (!fs::is_symlink(folder, error)) {
    FUSIONLLM_RETURN_IF_ERROR(CheckIsNewest(folder));
    return folder;
  }
  // Resolved once: `latest` may move on while the files are read.
  const fs::path target = fs::read_symlink(folder, error);
  if (error) return base::FileError(error.value(), "read the link", folder);
  return target.is_absolute() ? target.string() : (fs::path(folder).parent_path() / target).string();
}

// Whether `folder`, which has no manifest, must have had one: by its name, or by files that no other maker has.
bool HasLostItsManifest(const std::string& folder) {
  const std::string name = fs::path(folder).filename().string();
  if (ParseStepFolderName(name.substr(0, name.find(".earlier-")))) return true;
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const auto kind = ShardKindOf(entry->path().filename().string());
    if (kind.has_value() && kind != ShardKind::kModel) return true;
  }
  return false;
}

// Of a run, or of its checkpoints, where nothing else is in it.
bool IsWithoutCheckpointsYet(const std::string& folder) {
  std::error_code error;
  if (Exists(absl::StrCat(folder, "/events.jsonl")) || Exists(absl::StrCat(folder, "/checkpoints"))) return true;
  return fs::path(folder).filename() == "checkpoints" && fs::is_empty(folder, error) && !error;
}

}  // namespace

CheckpointReader::CheckpointReader(CheckpointReader&& other) noexcept { *this = std::move(other); }

CheckpointReader& CheckpointReader::operator=(CheckpointReader&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(manifest_, other.manifest_);
  std::swap(files_in_other_sites_, other.files_in_other_sites_);
  std::swap(files_, other.files_);
  std::swap(tensors_, other.tensors_);
  std::swap(lock_, other.lock_);
  return *this;
}

CheckpointReader::~CheckpointReader() {
  if (lock_ >= 0) close(lock_);
}

absl::StatusOr<CheckpointReader> CheckpointReader::Open(const std::string& path, SiteFilesPolicy site_files) {
  CheckpointReader reader;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) return absl::NotFoundError(absl::StrCat("checkpoint ", path, " does not exist"));
  if (fs::is_directory(status)) {
    FUSIONLLM_ASSIGN_OR_RETURN(reader.path_, FollowLatest(path));
    FUSIONLLM_RETURN_IF_ERROR(reader.OpenFolder(reader.path_, site_files));
  } else if (fs::is_regular_file(status)) {
    if (absl::EndsWith(path, kIndexEnding)) {
      return absl::InvalidArgumentError(absl::StrCat(path, " is the index of a model in several files: name the folder that holds them"));
    }
    reader.path_ = path;
    FUSIONLLM_RETURN_IF_ERROR(reader.AddFile(path));
  } else {
    return absl::InvalidArgumentError(absl::StrCat("checkpoint ", path, " is neither a file nor a folder"));
  }
  if (!reader.manifest_.has_value()) reader.NameAsParameters();
  return reader;
}

void CheckpointReader::NameAsParameters() {
  const models::TensorNameMap name_of = models::FindTensorNameMap([this](absl::string_view tensor) { return Contains(tensor); });
  if (name_of == nullptr) return;
  std::map<std::string, StoredTensor> named;
  for (auto& [name, tensor] : tensors_) named.emplace(name_of(name), tensor);
  tensors_ = std::move(named);
}

absl::Status CheckpointReader::OpenFolder(const std::string& folder, SiteFilesPolicy site_files) {
  std::error_code error;
  const std::string manifest = absl::StrCat(folder, "/", kManifestName);
  if (fs::exists(manifest, error)) return OpenCheckpoint(folder, site_files);
  if (error) return base::FileError(error.value(), "look for", manifest);  // such as a folder that may not be searched
  if (HasLostItsManifest(folder)) {
    return absl::DataLossError(absl::StrCat(folder, " has no ", kManifestName, ": whether its files are whole cannot be checked"));
  }
  // In this order, as Hugging Face's from_pretrained: an index that is there besides is mostly left over from before.
  const std::string single = absl::StrCat(folder, "/", ShardFileName(ShardKind::kModel, 0, 1));
  if (Exists(single)) return AddFile(single);
  if (Exists(absl::StrCat(folder, "/", kIndexName))) return OpenIndexed(folder);
  if (IsWithoutCheckpointsYet(folder)) {
    return absl::InvalidArgumentError(absl::StrCat("no checkpoints in ", folder,
                                                   " yet; where the run's spec.checkpoint.path is another folder than checkpoints/, name "
                                                   "that one"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat(folder, " is no checkpoint: it has neither ", kManifestName, " nor ", kIndexName, " nor model.safetensors"));
}

absl::Status CheckpointReader::OpenCheckpoint(const std::string& folder, SiteFilesPolicy site_files) {
  const std::string manifest_path = absl::StrCat(folder, "/", kManifestName);
  lock_ = open(manifest_path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe would wait for a writer
  if (lock_ < 0) return base::FileError(errno, "open", manifest_path);
  // Where the file system has no locks the checkpoint can still be read; it is only not protected from pruning.
  while (flock(lock_, LOCK_SH) != 0 && errno == EINTR) continue;
  FUSIONLLM_ASSIGN_OR_RETURN(manifest_, LoadManifest(folder));
  FUSIONLLM_RETURN_IF_ERROR(CheckFileSizes(folder, *manifest_));
  files_in_other_sites_ = FilesInOtherSites(folder, *manifest_);
  if (!files_in_other_sites_.empty() && site_files == SiteFilesPolicy::kReject) {
    return absl::FailedPreconditionError(absl::StrCat("of ", folder,
                                                      " there are not here: ", DescribeFilesInOtherSites(files_in_other_sites_),
                                                      "; a copy made by spec.checkpoint.replica has all of them"));
  }
  std::set<std::string> absent;
  for (const FileEntry& file : files_in_other_sites_) absent.insert(file.name);
  for (const FileEntry& file : manifest_->files) {
    if (ShardKindOf(file.name) && !absent.contains(file.name)) FUSIONLLM_RETURN_IF_ERROR(AddFile(absl::StrCat(folder, "/", file.name)));
  }
  if (!Exists(absl::StrCat(folder, "/", kIndexName))) return absl::OkStatus();
  FUSIONLLM_ASSIGN_OR_RETURN(auto weight_map, LoadIndex(absl::StrCat(folder, "/", kIndexName)));
  std::erase_if(weight_map, [&](const auto& entry) { return absent.contains(entry.second); });
  return CheckIndex(folder, weight_map, tensors_);
}

absl::Status CheckpointReader::OpenIndexed(const std::string& folder) {
  FUSIONLLM_ASSIGN_OR_RETURN(const auto weight_map, LoadIndex(absl::StrCat(folder, "/", kIndexName)));
  std::set<std::string> names;
  for (const auto& [tensor, file] : weight_map) names.insert(file);
  if (names.size() > kMaxFilesOfCheckpoint) {
    return absl::InvalidArgumentError(absl::StrCat(folder, "/", kIndexName, " names ", names.size(), " files"));
  }
  for (const std::string& name : names) FUSIONLLM_RETURN_IF_ERROR(AddFile(absl::StrCat(folder, "/", name), weight_map));
  return CheckIndex(folder, weight_map, tensors_);
}

absl::Status CheckpointReader::AddFile(const std::string& path, const std::map<std::string, std::string>& weight_map) {
  const std::string own_name = fs::path(path).filename().string();
  FUSIONLLM_ASSIGN_OR_RETURN(SafetensorsFile opened, SafetensorsFile::Open(path));
  files_.push_back(std::make_unique<SafetensorsFile>(std::move(opened)));
  const SafetensorsFile& file = *files_.back();
  for (const TensorEntry& entry : file.tensors()) {
    const auto indexed = weight_map.find(entry.name);
    if (indexed != weight_map.end() && indexed->second != own_name) continue;
    const auto [at, is_new] = tensors_.emplace(entry.name, StoredTensor{&file, &entry});
    if (!is_new) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor '", entry.name, "' is both in ", at->second.file->path(), " and in ", file.path()));
    }
  }
  return absl::OkStatus();
}

bool CheckpointReader::IsParameter(const StoredTensor& tensor) const {
  const auto kind = ShardKindOf(fs::path(tensor.file->path()).filename().string());
  return !manifest_ || kind == ShardKind::kModel;
}

absl::Status CheckpointReader::Read(absl::string_view name, const tensor::TensorView& into) const {
  const auto found = tensors_.find(std::string(name));
  if (found == tensors_.end()) return absl::NotFoundError(absl::StrCat(path_, " has no tensor '", name, "'"));
  return found->second.file->Read(found->second.entry->name, into);
}

std::vector<FileEntry> FilesInOtherSites(const std::string& folder, const Manifest& manifest) {
  std::vector<FileEntry> elsewhere;
  for (const FileEntry& file : manifest.files) {
    std::error_code error;
    if (file.site.empty()) continue;
    const auto bytes = fs::file_size(absl::StrCat(folder, "/", file.name), error);
    if (error || static_cast<int64_t>(bytes) != file.bytes) elsewhere.push_back(file);
  }
  return elsewhere;
}

std::string DescribeFilesInOtherSites(const std::vector<FileEntry>& files) {
  std::map<std::string, std::vector<std::string>> of_site;
  for (const FileEntry& file : files) of_site[file.site].push_back(file.name);
  std::vector<std::string> sites;
  for (const auto& [site, names] : of_site) {
    const size_t listed = std::min(names.size(), kMaxFilesListed);
    const std::string more = names.size() > listed ? absl::StrCat(" and ", names.size() - listed, " more") : "";
    sites.push_back(
        absl::StrCat(absl::StrJoin(names.begin(), names.begin() + static_cast<int64_t>(listed), ", "), more, " in site ", site));
  }
  return absl::StrJoin(sites, "; ");
}

absl::Status CheckFileSizes(const std::string& folder, const Manifest& manifest) {
  for (const FileEntry& file : manifest.files) {
    if (!file.site.empty()) continue;  // see FilesInOtherSites
    const std::string path = absl::StrCat(folder, "/", file.name);
    std::error_code error;
    const auto bytes = fs::file_size(path, error);
    if (error) return absl::DataLossError(absl::StrCat(path, " cannot be read: ", error.message()));
    if (static_cast<int64_t>(bytes) != file.bytes) {
      return absl::DataLossError(absl::StrCat(path, " has ", bytes, " bytes instead of ", file.bytes));
    }
  }
  return absl::OkStatus();
}

namespace {

struct Problem {
  std::string text;         // empty: none
  bool is_damage = false;   // it was read, and is not what was written; else it may be readable another time
  bool is_refused = false;  // it may not be read: nothing is known of it
};

// Of a file of a manifest.
Problem ProblemOf(const std::string& path, const FileEntry& file) {
  std::error_code error;
  const auto bytes = fs::file_size(path, error);
  if (error) {
    return {.text = absl::StrCat(path, " cannot be read: ", error.message()), .is_refused = error == std::errc::permission_denied};
  }
  if (static_cast<int64_t>(bytes) != file.bytes) {
    return {.text = absl::StrCat(path, " has ", bytes, " bytes instead of ", file.bytes), .is_damage = true};
  }
  const absl::StatusOr<std::string> sum = Sha256OfFile(path);
  if (!sum.ok()) return {.text = std::string(sum.status().message()), .is_refused = absl::IsPermissionDenied(sum.status())};
  if (*sum == file.sha256) return {};
  return {.text = absl::StrCat(path, " has the checksum ", *sum, " instead of ", file.sha256), .is_damage = true};
}

// With `damaged_copies`: files of sites that are damaged here are put there and are no error; where there are any, no file is opened.
absl::Status Verify(const std::string& path, SiteFilesPolicy site_files, std::vector<std::string>* damaged_copies) {
  std::error_code ignored;
  std::vector<std::string> problems;
  bool all_refused = true;  // of the problems
  FUSIONLLM_ASSIGN_OR_RETURN(const std::string folder, FollowLatest(path));
  if (Exists(absl::StrCat(folder, "/", kManifestName))) {
    const absl::StatusOr<Manifest> manifest = LoadManifest(folder);
    if (absl::IsInvalidArgument(manifest.status())) return absl::DataLossError(manifest.status().message());  // a file like any other
    if (!manifest.ok()) return manifest.status();
    std::set<std::string> absent;
    for (const FileEntry& file : FilesInOtherSites(folder, *manifest)) absent.insert(file.name);
    for (const FileEntry& file : manifest->files) {
      if (absent.contains(file.name)) continue;  // Open says so
      const std::string file_path = absl::StrCat(folder, "/", file.name);
      const Problem problem = ProblemOf(file_path, file);
      if (problem.text.empty()) continue;
      if (!file.site.empty() && damaged_copies != nullptr && problem.is_damage) {
        damaged_copies->push_back(file_path);
      } else {
        problems.push_back(problem.text);
        all_refused = all_refused && problem.is_refused;
      }
    }
  }
  if (!problems.empty()) {
    return absl::Status(all_refused ? absl::StatusCode::kPermissionDenied : absl::StatusCode::kDataLoss, absl::StrJoin(problems, "; "));
  }
  if (damaged_copies != nullptr && !damaged_copies->empty()) return absl::OkStatus();
  const absl::Status opened = CheckpointReader::Open(path, site_files).status();
  // What is a model, to go by its name, and cannot be read as one is damaged; what is no model at all was named by mistake.
  const bool model = absl::EndsWith(folder, kModelEnding) || Exists(absl::StrCat(folder, "/", kIndexName)) ||
                     Exists(absl::StrCat(folder, "/", ShardFileName(ShardKind::kModel, 0, 1)));
  const bool unreadable = absl::IsInvalidArgument(opened) || (absl::IsNotFound(opened) && Exists(folder));
  return model && unreadable ? absl::DataLossError(opened.message()) : opened;
}

}  // namespace

absl::Status VerifyCheckpoint(const std::string& path, SiteFilesPolicy site_files) { return Verify(path, site_files, nullptr); }

absl::Status VerifyToRestore(const std::string& path, DamagedCopies copies) {
  std::vector<std::string> damaged;
  FUSIONLLM_RETURN_IF_ERROR(Verify(path, SiteFilesPolicy::kSkip, &damaged));
  if (damaged.empty() || copies == DamagedCopies::kKeep) return absl::OkStatus();
  for (const std::string& copy : damaged) {
    if (unlink(copy.c_str()) != 0 && errno != ENOENT) return base::FileError(errno, "remove the damaged", copy);
  }
  return VerifyCheckpoint(path, SiteFilesPolicy::kSkip);
}

}  // namespace fusionllm::checkpoint
