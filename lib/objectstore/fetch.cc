#include "lib/objectstore/fetch.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "lib/base/json_text.h"
#include "lib/base/output_file.h"
#include "lib/base/source_file.h"
#include "lib/base/status_macros.h"

namespace fusionllm::objectstore {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxObjects = 1'000'000;  // as many files as data may have
constexpr char kIndexName[] = ".objects.json";
constexpr int64_t kMaxIndexBytes = int64_t{512} << 20;

bool IsHidden(absl::string_view path) { return absl::StartsWith(path, ".") || absl::StrContains(path, "/."); }

// Keys "a" and "a/b" may both be there; a file and a folder of one name cannot.
absl::Status CheckNoFileIsAFolder(const base::ObjectUri& uri, const std::map<std::string, ObjectInfo>& objects) {
  for (const auto& [path, object] : objects) {
    for (size_t slash = path.find('/'); slash != std::string::npos; slash = path.find('/', slash + 1)) {
      const auto file = objects.find(path.substr(0, slash));
      if (file == objects.end()) continue;
      return absl::InvalidArgumentError(absl::StrCat(base::ToString(uri), " has the objects '", file->second.key, "' and '", object.key,
                                                     "': here one name cannot be a file and a folder"));
    }
  }
  return absl::OkStatus();
}

// What lies here, by path: the ETag that it came with. Only a hint: a file that is not as long as it should be is fetched anyway.
std::map<std::string, std::string> ReadIndex(const std::string& folder) {
  std::map<std::string, std::string> index;
  const absl::StatusOr<std::string> text = base::ReadSmallFile(absl::StrCat(folder, "/", kIndexName), kMaxIndexBytes);
  if (!text.ok()) return index;
  const nlohmann::json document = base::ParseJson(*text);
  if (!document.is_object()) return index;
  for (const auto& [path, etag] : document.items()) {
    if (etag.is_string()) index[path] = etag.get<std::string>();
  }
  return index;
}

absl::Status WriteIndex(const std::string& folder, const std::map<std::string, std::string>& index) {
  return base::ReplaceFile(absl::StrCat(folder, "/", kIndexName),
                           nlohmann::json(index).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

// Held by the process that fills a folder.
class FillLock {
 public:
  static absl::StatusOr<FillLock> Take(const std::string& path) {
    const int descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (descriptor < 0) return base::FileError(errno, "open", path);
    FillLock lock(descriptor);
    while (flock(descriptor, LOCK_EX) != 0) {
      if (errno != EINTR) return base::FileError(errno, "lock", path);
    }
    return lock;
  }
  FillLock(FillLock&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  FillLock& operator=(FillLock&&) = delete;
  ~FillLock() {
    if (descriptor_ >= 0) close(descriptor_);
  }

 private:
  explicit FillLock(int descriptor) : descriptor_(descriptor) {}
  int descriptor_;
};

bool IsHere(const std::string& path, int64_t bytes) {
  std::error_code error;
  return fs::is_regular_file(path, error) && static_cast<int64_t>(fs::file_size(path, error)) == bytes && !error;
}

absl::Status RemoveOthers(const std::string& folder, const FoundObjects& wanted) {
  std::error_code error;
  std::vector<fs::path> others;
  fs::recursive_directory_iterator entry(folder, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    std::error_code ignored;
    if (entry->is_directory(ignored)) continue;
    const std::string path = entry->path().lexically_relative(folder).string();
    if (path != kIndexName && !wanted.objects.contains(path)) others.push_back(entry->path());
  }
  if (error) return base::FileError(error.value(), "list", folder);
  for (const fs::path& path : others) FUSIONLLM_RETURN_IF_ERROR(base::RemoveTree(path.string()));
  return absl::OkStatus();
}

}  // namespace

// An object is looked at before anything is listed, for who may read it need not be allowed to list; a folder is listed with the slash
// behind its name, as policies for a prefix have it.
absl::StatusOr<FoundObjects> FindObjects(ObjectStore& store, const base::ObjectUri& uri, size_t max_objects) {
  FoundObjects wanted;
  absl::Status looked;
  if (!uri.key.empty() && !uri.folder) {
    absl::StatusOr<ObjectInfo> object = store.Stat(uri);
    if (object.ok()) {
      wanted.single = true;
      wanted.objects[uri.key.substr(uri.key.rfind('/') + 1)] = *std::move(object);
      return wanted;
    }
    looked = object.status();
    // Without the right to list a store does not say that an object is not there: it denies it.
    if (!absl::IsNotFound(looked) && !absl::IsPermissionDenied(looked)) return looked;
  }
  const std::string prefix = uri.key.empty() ? "" : absl::StrCat(uri.key, "/");
  absl::StatusOr<std::vector<ObjectInfo>> objects = store.List(uri.bucket, prefix, max_objects);
  if (absl::IsPermissionDenied(objects.status()) && absl::IsPermissionDenied(looked)) {
    return absl::PermissionDeniedError(
        absl::StrCat(looked.message(), "; nor may the objects below it be listed: ", objects.status().message()));
  }
  FUSIONLLM_RETURN_IF_ERROR(objects.status());
  for (ObjectInfo& object : *objects) {
    const std::string path = object.key.substr(prefix.size());
    if (path.empty() || absl::EndsWith(path, "/")) continue;  // stands for an empty folder
    if (!base::IsRelativePath(path)) {
      return absl::InvalidArgumentError(absl::StrCat(base::ToString(uri), " has an object whose key is no path: '", object.key, "'"));
    }
    if (!IsHidden(path)) wanted.objects[path] = std::move(object);
  }
  if (wanted.objects.empty() && absl::IsPermissionDenied(looked)) return looked;
  if (wanted.objects.empty())
    return absl::NotFoundError(absl::StrCat(base::ToString(uri), " at ", store.endpoint(), ": there is no such object, and none below it"));
  FUSIONLLM_RETURN_IF_ERROR(CheckNoFileIsAFolder(uri, wanted.objects));
  return wanted;
}

absl::Status CheckExists(ObjectStore& store, const base::ObjectUri& uri) { return FindObjects(store, uri, 16).status(); }

absl::StatusOr<std::string> Fetch(ObjectStore& store, const base::ObjectUri& uri, const std::string& scratch) {
  const std::string name = Sha256Hex(absl::StrCat(store.endpoint(), " ", base::ToString(uri))).substr(0, 16);
  const std::string folder = absl::StrCat(scratch, "/", name);
  FUSIONLLM_RETURN_IF_ERROR(base::MakeFolders(folder));
  FUSIONLLM_ASSIGN_OR_RETURN(const FillLock alone, FillLock::Take(absl::StrCat(folder, ".lock")));
  FUSIONLLM_ASSIGN_OR_RETURN(const FoundObjects wanted, FindObjects(store, uri, kMaxObjects));
  FUSIONLLM_RETURN_IF_ERROR(RemoveOthers(folder, wanted));
  std::map<std::string, std::string> index = ReadIndex(folder);
  bool changed = false;
  absl::Status status;
  for (const auto& [path, object] : wanted.objects) {
    const std::string file = absl::StrCat(folder, "/", path);
    if (const auto known = index.find(path); known != index.end() && known->second == object.etag && IsHere(file, object.bytes)) continue;
    status = base::MakeFolders(fs::path(file).parent_path().string());
    if (status.ok()) status = store.Fetch({.bucket = uri.bucket, .key = object.key}, object.bytes, object.etag, file).status();
    if (!status.ok()) break;
    index[path] = object.etag;
    changed = true;
  }
  // Of what has come, too, when the rest has not: it need not come again.
  if (changed) FUSIONLLM_RETURN_IF_ERROR(WriteIndex(folder, index));
  FUSIONLLM_RETURN_IF_ERROR(status);
  return wanted.single ? absl::StrCat(folder, "/", wanted.objects.begin()->first) : folder;
}

}  // namespace fusionllm::objectstore
