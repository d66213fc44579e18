#include "lib/archive/fetch_headers.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "lib/base/output_file.h"
#include "lib/base/status_macros.h"
#include "lib/checkpoint/layout.h"
#include "lib/checkpoint/manifest.h"
#include "lib/checkpoint/safetensors_header.h"
#include "lib/objectstore/fetch.h"

namespace fusionllm::archive {
namespace {

constexpr int64_t kMaxJsonBytes = 64 << 20;
constexpr int64_t kPrefixBytes = 8;
constexpr size_t kMaxListedObjects = 1'000'000;
constexpr const char* kJson[] = {checkpoint::kManifestName, checkpoint::kIndexName, "config.json"};

// Length and JSON of a header; what stands there of a file that has none.
absl::StatusOr<std::string> ReadHead(objectstore::ObjectStore& store, const base::ObjectUri& uri, const objectstore::ObjectInfo& object) {
  if (object.bytes < kPrefixBytes) return std::string(static_cast<size_t>(object.bytes), '\0');
  FUSIONLLM_ASSIGN_OR_RETURN(std::string head, store.ReadRange(uri, 0, kPrefixBytes, object.etag));
  uint64_t length = 0;
  for (int i = 0; i < kPrefixBytes; ++i) length |= uint64_t{static_cast<uint8_t>(head[static_cast<size_t>(i)])} << (8 * i);
  if (length == 0 || length > static_cast<uint64_t>(checkpoint::kMaxHeaderBytes)) return head;
  if (static_cast<int64_t>(length) > object.bytes - kPrefixBytes) return head;
  FUSIONLLM_ASSIGN_OR_RETURN(const std::string json, store.ReadRange(uri, kPrefixBytes, static_cast<int64_t>(length), object.etag));
  return absl::StrCat(head, json);
}

absl::Status Outline(objectstore::ObjectStore& store, const base::ObjectUri& uri, const objectstore::ObjectInfo& object,
                     const std::string& path) {
  FUSIONLLM_ASSIGN_OR_RETURN(const std::string head, ReadHead(store, uri, object));
  FUSIONLLM_RETURN_IF_ERROR(base::WriteFile(path, head));
  std::error_code error;
  std::filesystem::resize_file(path, static_cast<uintmax_t>(object.bytes), error);
  return error ? base::FileError(error.value(), "lengthen", path) : absl::OkStatus();
}

}  // namespace

absl::StatusOr<base::ObjectUri> FollowLatest(objectstore::ObjectStore& store, const base::ObjectUri& uri) {
  if (absl::EndsWith(uri.key, ".safetensors")) return uri;  // and below a file nothing need be allowed
  const absl::StatusOr<std::string> latest = store.Read(base::JoinUri(uri, checkpoint::kLatestName), checkpoint::kMaxLatestBytes);
  if (absl::IsNotFound(latest.status())) return uri;
  FUSIONLLM_RETURN_IF_ERROR(latest.status());
  const std::string name(absl::StripSuffix(*latest, "\n"));
  if (!base::IsRelativePath(name)) return absl::InvalidArgumentError(absl::StrCat(base::ToString(uri), "/latest names no checkpoint"));
  return base::JoinUri(uri, name);
}

absl::StatusOr<std::string> FetchHeaders(objectstore::ObjectStore& store, const base::ObjectUri& uri, const std::string& folder) {
  FUSIONLLM_ASSIGN_OR_RETURN(const base::ObjectUri at, FollowLatest(store, uri));
  FUSIONLLM_ASSIGN_OR_RETURN(const objectstore::FoundObjects found, objectstore::FindObjects(store, at, kMaxListedObjects));
  for (const auto& [name, object] : found.objects) {
    const base::ObjectUri object_uri{.bucket = at.bucket, .key = object.key};
    const std::string path = absl::StrCat(folder, "/", name);
    if (found.single || (absl::EndsWith(name, ".safetensors") && !absl::StrContains(name, '/'))) {
      FUSIONLLM_RETURN_IF_ERROR(Outline(store, object_uri, object, path));
    } else if (std::find(std::begin(kJson), std::end(kJson), name) != std::end(kJson)) {
      FUSIONLLM_ASSIGN_OR_RETURN(const std::string text, store.Read(object_uri, kMaxJsonBytes));
      FUSIONLLM_RETURN_IF_ERROR(base::WriteFile(path, text));
    }
  }
  return found.single ? absl::StrCat(folder, "/", found.objects.begin()->first) : folder;
}

}  // namespace fusionllm::archive
