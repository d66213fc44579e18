#include "lib/checkpoint/site_store.h"

#include <openssl/rand.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "lib/base/mutex.h"
#include "lib/base/output_file.h"
#include "lib/base/source_file.h"
#include "lib/base/status_macros.h"
#include "lib/checkpoint/layout.h"

namespace fusionllm::checkpoint {
namespace {

namespace fs = std::filesystem;

absl::StatusOr<uint64_t> NewNumber() {
  uint64_t number = 0;
  if (RAND_bytes(reinterpret_cast<unsigned char*>(&number), sizeof number) != 1)
    return absl::InternalError("no random numbers are to be had");
  return number;
}

absl::StatusOr<std::vector<std::string>> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  if (!fs::exists(folder, error) && !error) return names;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) names.push_back(entry->path().filename().string());
  if (error == std::errc::no_such_file_or_directory) return names;  // another has removed it meanwhile
  if (error) return base::FileError(error.value(), "list", folder);
  return names;
}

// Of a folder, as .shards-id has them.
struct Whereabouts {
  std::string inode;  // "DEVICE INODE"
  std::string path;
};

absl::StatusOr<Whereabouts> WhereaboutsOf(const std::string& folder) {
  struct stat info = {};
  if (stat(folder.c_str(), &info) != 0) return base::FileError(errno, "look at", folder);
  std::error_code error;
  const fs::path path = fs::canonical(folder, error);
  if (error) return base::FileError(error.value(), "look at", folder);
  return Whereabouts{.inode = absl::StrCat(info.st_dev, " ", info.st_ino), .path = path.string()};
}

}  // namespace

std::string SiteStore::Root() const { return absl::StrCat(directory_, "/", kSiteShardsName); }

absl::StatusOr<std::vector<FileEntry>> SiteStore::Write(uint32_t epoch, int64_t step, int stage, int stages,
                                                        const ShardContents& contents) {
  FUSIONLLM_ASSIGN_OR_RETURN(const uint64_t number, NewNumber());
  const std::string name = ToString(SiteFolder{.id = id_, .device = device_, .step = step, .number = number});
  const std::string folder = absl::StrCat(Root(), "/", name);
  {
    const base::MutexLock lock(mutex_);  // before there is anything that GarbageCollect could see
    written_[name] = {epoch, step};
  }
  FUSIONLLM_RETURN_IF_ERROR(base::MakeFolders(folder));
  absl::StatusOr<std::vector<FileEntry>> files = WriteShardFiles(folder, step, stage, stages, contents);
  // The folders, too, must outlast a crash: all down to the one that was there.
  absl::Status synced = files.status();
  fs::path path = folder;
  for (int depth = 0; synced.ok() && depth < 5; ++depth, path = path.parent_path()) synced = base::SyncFolder(path.string());
  // The site's folder may be as new. What it lies in may be out of reach, which then is not ours to make durable.
  for (; synced.ok() && path.has_relative_path(); path = path.parent_path()) base::SyncFolder(path.string()).IgnoreError();
  if (!synced.ok()) {
    base::RemoveTree(folder).IgnoreError();  // the first error is the one to tell
    return synced;
  }
  for (FileEntry& file : *files) file.site_folder = name;
  return files;
}

absl::StatusOr<std::string> SiteStore::PathOf(const std::string& site_folder, const std::string& name) const {
  if (!ParseSiteFolder(site_folder) || !ShardKindOf(name) || name.find('/') != std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat("'", site_folder.substr(0, 255), "/", name.substr(0, 255), "' is no file of a shard"));
  }
  return absl::StrCat(Root(), "/", site_folder, "/", name);
}

absl::Status SiteStore::GarbageCollectDevice(const std::string& device, const CommitProgress& decided) {
  const std::string folder = absl::StrCat(Root(), "/", id_, "/", device);
  FUSIONLLM_ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesIn(folder));
  for (const std::string& name : names) {
    const std::string save = absl::StrCat(id_, "/", device, "/", name);
    if (!ParseSiteFolder(save) || decided.kept.contains(save)) continue;
    {
      const base::MutexLock lock(mutex_);
      const auto own = written_.find(save);
      if (own != written_.end() && own->second > std::pair(decided.epoch, decided.step)) continue;
      if (own != written_.end()) written_.erase(own);
    }
    // Another of the site may be at it, by an order that is older or newer.
    const absl::Status removed = base::RemoveTree(absl::StrCat(folder, "/", name));
    if (!removed.ok() && !absl::IsNotFound(removed)) return removed;
  }
  if (device != device_) rmdir(folder.c_str());  // fails when something of it is kept
  return absl::OkStatus();
}

absl::Status SiteStore::GarbageCollect(const CommitProgress& decided) {
  FUSIONLLM_RETURN_IF_ERROR(GarbageCollectDevice(device_, decided));
  if (decided.present == nullptr) return absl::OkStatus();
  FUSIONLLM_ASSIGN_OR_RETURN(const std::vector<std::string> devices, NamesIn(absl::StrCat(Root(), "/", id_)));
  for (const std::string& device : devices) {
    if (!decided.present->contains(device)) FUSIONLLM_RETURN_IF_ERROR(GarbageCollectDevice(device, decided));
  }
  return absl::OkStatus();
}

absl::Status CanKeepShards(const std::string& directory) {
  std::error_code ignored;
  if (fs::exists(absl::StrCat(directory, "/", kSiteShardsName), ignored)) return absl::OkStatus();
  const absl::Status made = base::MakeFolders(directory);
  if (!made.ok()) return absl::IsResourceExhausted(made) ? absl::OkStatus() : made;
  if (access(directory.c_str(), W_OK | X_OK) == 0) return absl::OkStatus();
  return base::FileError(errno, "write in", directory);
}

absl::StatusOr<ShardsId> ShardsIdOf(const std::string& root) {
  constexpr int64_t kMaxBytes = 16 << 10;
  const std::string path = absl::StrCat(root, "/", kShardsIdName);
  static base::Mutex one_makes_it;  // executors of several sites come at the same time
  const base::MutexLock lock(one_makes_it);
  FUSIONLLM_RETURN_IF_ERROR(base::MakeFolders(root));
  FUSIONLLM_ASSIGN_OR_RETURN(const Whereabouts here, WhereaboutsOf(root));
  const absl::StatusOr<std::string> text = base::ReadSmallFile(path, kMaxBytes);
  if (!text.ok() && !absl::IsNotFound(text.status())) return text.status();
  ShardsId result;
  if (const std::vector<std::string> lines = absl::StrSplit(text.value_or(""), absl::MaxSplits('\n', 2)); IsShardsId(lines[0])) {
    const bool says_where = lines.size() == 3;
    const Whereabouts there = says_where ? Whereabouts{.inode = lines[1], .path = lines[2]} : here;
    if (says_where && there.inode == here.inode && there.path == here.path) return ShardsId{.id = lines[0]};
    if (there.inode == here.inode || there.path == here.path) {
      result.id = lines[0];
    } else {
      result.copied_id = lines[0];
      result.copied_from = there.path;
    }
  }
  if (result.id.empty()) {
    FUSIONLLM_ASSIGN_OR_RETURN(const uint64_t number, NewNumber());
    result.id = absl::StrFormat("%016x", number);
  }
  FUSIONLLM_RETURN_IF_ERROR(base::ReplaceFile(path, absl::StrCat(result.id, "\n", here.inode, "\n", here.path)));
  FUSIONLLM_RETURN_IF_ERROR(base::SyncFolder(root));
  return result;
}

}  // namespace fusionllm::checkpoint
