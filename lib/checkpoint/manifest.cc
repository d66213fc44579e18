#include "lib/checkpoint/manifest.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "lib/base/json_text.h"
#include "lib/base/source_file.h"
#include "lib/base/status_macros.h"
#include "lib/checkpoint/hashed_file.h"
#include "lib/checkpoint/layout.h"
#include "nlohmann/json.hpp"

namespace fusionllm::checkpoint {
namespace {

using nlohmann::json;

constexpr char kChecksumKey[] = "sha256";
constexpr char kNewerSequence[] = "fusionllm/sequence-of-newer-format";  // payload of an error
constexpr int64_t kMaxCheckpointBytes = int64_t{1} << 62;                // of all files together: sums do not overflow
constexpr size_t kMaxSiteName = 253;

absl::Status Bad(absl::string_view key, absl::string_view what) { return absl::InvalidArgumentError(absl::StrCat("'", key, "' ", what)); }

absl::Status GetText(const json& object, const char* key, std::string& value) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string()) return Bad(key, "is missing or no text");
  value = found->get<std::string>();
  return absl::OkStatus();
}

absl::Status GetCount(const json& object, const char* key, int64_t& value) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_integer()) return Bad(key, "is missing or no whole number");
  if (found->is_number_unsigned() && found->get<uint64_t>() > uint64_t{1} << 62) return Bad(key, "is out of range");
  value = found->get<int64_t>();
  return value < 0 ? Bad(key, "is negative") : absl::OkStatus();
}

absl::Status CheckFile(const FileEntry& file) {
  if (file.name.empty() || file.name.size() > 255 || file.name[0] == '.' || absl::StrContains(file.name, "/") ||
      file.name == kManifestName) {
    return absl::InvalidArgumentError(absl::StrCat("'files' has the file name '", file.name.substr(0, 255), "'"));
  }
  const bool hex =
      std::all_of(file.sha256.begin(), file.sha256.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
  if (file.sha256.size() != 64 || !hex) return Bad("sha256", absl::StrCat("of ", file.name, " is no SHA-256 checksum"));
  return absl::OkStatus();
}

// The keys of a file that lies in its site.
absl::Status GetSite(const json& object, FileEntry& file) {
  if (!object.contains("site")) return absl::OkStatus();
  FUSIONLLM_RETURN_IF_ERROR(GetText(object, "site", file.site));
  FUSIONLLM_RETURN_IF_ERROR(GetText(object, "site_folder", file.site_folder));
  if (file.site.empty() || file.site.size() > kMaxSiteName) return Bad("site", absl::StrCat("of ", file.name, " is no name"));
  if (!ParseSiteFolder(file.site_folder)) return Bad("site_folder", absl::StrCat("of ", file.name, " is no folder of shards"));
  const auto tensors = object.find("tensors");
  if (tensors == object.end() || !tensors->is_array()) return Bad("tensors", absl::StrCat("of ", file.name, " is missing or no list"));
  for (const json& name : *tensors) {
    if (!name.is_string()) return Bad("tensors", absl::StrCat("of ", file.name, " has an entry that is no text"));
    file.tensors.push_back(name.get<std::string>());
  }
  return absl::OkStatus();
}

absl::Status GetFiles(const json& object, std::vector<FileEntry>& files) {
  const auto found = object.find("files");
  if (found == object.end() || !found->is_array()) return Bad("files", "is missing or no list");
  if (found->size() > kMaxFilesOfCheckpoint) return Bad("files", absl::StrCat("has ", found->size(), " entries"));
  std::set<std::string> names;
  int64_t left = kMaxCheckpointBytes;
  for (const json& item : *found) {
    if (!item.is_object()) return Bad("files", "has an entry that is no object");
    FileEntry file;
    FUSIONLLM_RETURN_IF_ERROR(GetText(item, "name", file.name));
    FUSIONLLM_RETURN_IF_ERROR(GetCount(item, "size", file.bytes));
    if (file.bytes > left) return Bad("size", absl::StrCat("of ", file.name.substr(0, 255), " is out of range"));
    left -= file.bytes;
    FUSIONLLM_RETURN_IF_ERROR(GetText(item, "sha256", file.sha256));
    FUSIONLLM_RETURN_IF_ERROR(CheckFile(file));
    FUSIONLLM_RETURN_IF_ERROR(GetSite(item, file));
    if (!names.insert(file.name).second) return Bad("files", absl::StrCat("names ", file.name, " twice"));
    files.push_back(std::move(file));
  }
  return absl::OkStatus();
}

absl::Status GetCodecLimits(const json& object, std::vector<CodecLimit>& limits) {
  const auto found = object.find("codec_limits");
  if (found == object.end()) return absl::OkStatus();
  if (!found->is_array()) return Bad("codec_limits", "is no list");
  if (found->size() > kMaxCodecLimits) return Bad("codec_limits", absl::StrCat("has ", found->size(), " entries"));
  for (const json& item : *found) {
    if (!item.is_object()) return Bad("codec_limits", "has an entry that is no object");
    CodecLimit& limit = limits.emplace_back();
    FUSIONLLM_RETURN_IF_ERROR(GetText(item, "value", limit.value));
    FUSIONLLM_RETURN_IF_ERROR(GetText(item, "codec", limit.codec));
    const auto gradient = item.find("gradient");
    if (gradient == item.end() || !gradient->is_boolean())
      return Bad("codec_limits", "has an entry whose 'gradient' is missing or not true or false");
    limit.gradient = gradient->get<bool>();
  }
  return absl::OkStatus();
}

// Of all keys but the checksum's own.
std::string ChecksumOf(json document) {
  document.erase(kChecksumKey);
  const std::string text = document.dump(-1, ' ', false, json::error_handler_t::replace);
  Sha256 hash;
  hash.Update(std::as_bytes(std::span(text)));
  return hash.HexDigest();
}

}  // namespace

bool HasSiteFiles(const std::vector<FileEntry>& files) {
  return std::any_of(files.begin(), files.end(), [](const FileEntry& file) { return !file.site.empty(); });
}

std::string FormatManifest(const Manifest& manifest) {
  nlohmann::ordered_json files = nlohmann::ordered_json::array();
  for (const FileEntry& file : manifest.files) {
    nlohmann::ordered_json entry = {{"name", file.name}, {"size", file.bytes}, {"sha256", file.sha256}};
    if (!file.site.empty()) {
      entry["site"] = file.site;
      entry["site_folder"] = file.site_folder;
      entry["tensors"] = file.tensors;
    }
    files.push_back(std::move(entry));
  }
  const int64_t version = HasSiteFiles(manifest.files) ? std::max(manifest.format_version, kSitesFormatVersion) : manifest.format_version;
  nlohmann::ordered_json document = {{"format_version", version},
                                     {"job_name", manifest.job_name},
                                     {"spec_hash", manifest.spec_hash},
                                     {"plan_hash", manifest.plan_hash},
                                     {"step", manifest.step},
                                     {"sequence", manifest.sequence},
                                     {"first_sequence", manifest.first_sequence},
                                     {"data_cursor", {{"samples_consumed", manifest.samples_consumed}}},
                                     {"rng", {{"seed", manifest.seed}}},
                                     {"files", std::move(files)},
                                     {"resolved_job", manifest.resolved_job}};
  if (manifest.micro_batch_size > 0) document["micro_batch_size"] = manifest.micro_batch_size;
  if (!manifest.codec_limit.empty()) document["codec_limit"] = manifest.codec_limit;
  if (!manifest.contents.empty()) document["contents"] = manifest.contents;
  for (const CodecLimit& limit : manifest.codec_limits) {
    document["codec_limits"].push_back({{"value", limit.value}, {"gradient", limit.gradient}, {"codec", limit.codec}});
  }
  const std::string text = document.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  document[kChecksumKey] = ChecksumOf(base::ParseJson(text));
  return document.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

absl::StatusOr<Manifest> ParseManifest(absl::string_view text) {
  if (text.size() > static_cast<size_t>(kMaxManifestBytes)) return absl::InvalidArgumentError("the manifest is too large");
  const json document = base::ParseJson(text);
  if (!document.is_object()) return absl::InvalidArgumentError("the manifest is no JSON object");
  Manifest manifest;
  // First of all: whatever else is wrong with a damaged manifest is not what its writer said.
  const bool sealed = document.contains(kChecksumKey);
  if (sealed && document.at(kChecksumKey) != ChecksumOf(document)) {
    return absl::DataLossError("the manifest is not as it was written: its own checksum is another");
  }
  FUSIONLLM_RETURN_IF_ERROR(GetCount(document, "format_version", manifest.format_version));
  if (manifest.format_version < 1 || manifest.format_version > kSitesFormatVersion) {
    absl::Status newer = absl::UnimplementedError(
        absl::StrCat("the format version is ", manifest.format_version, "; this release reads versions 1 to ", kSitesFormatVersion));
    if (GetCount(document, "sequence", manifest.sequence).ok()) {
      newer.SetPayload(kNewerSequence, absl::Cord(absl::StrCat(manifest.sequence)));
    }
    return newer;
  }
  if (!sealed && manifest.format_version > 1) return Bad(kChecksumKey, "is missing");
  FUSIONLLM_RETURN_IF_ERROR(GetText(document, "job_name", manifest.job_name));
  FUSIONLLM_RETURN_IF_ERROR(GetText(document, "spec_hash", manifest.spec_hash));
  FUSIONLLM_RETURN_IF_ERROR(GetText(document, "plan_hash", manifest.plan_hash));
  FUSIONLLM_RETURN_IF_ERROR(GetText(document, "resolved_job", manifest.resolved_job));
  FUSIONLLM_RETURN_IF_ERROR(GetCount(document, "step", manifest.step));
  FUSIONLLM_RETURN_IF_ERROR(GetCount(document, "sequence", manifest.sequence));
  if (document.contains("first_sequence")) FUSIONLLM_RETURN_IF_ERROR(GetCount(document, "first_sequence", manifest.first_sequence));
  if (document.contains("micro_batch_size")) FUSIONLLM_RETURN_IF_ERROR(GetCount(document, "micro_batch_size", manifest.micro_batch_size));
  if (document.contains("codec_limit")) FUSIONLLM_RETURN_IF_ERROR(GetText(document, "codec_limit", manifest.codec_limit));
  FUSIONLLM_RETURN_IF_ERROR(GetCodecLimits(document, manifest.codec_limits));
  if (const auto contents = document.find("contents"); contents != document.end()) {
    if (!contents->is_object()) return Bad("contents", "is no object");
    for (const auto& [field, content] : contents->items()) {
      if (!content.is_string()) return Bad("contents", absl::StrCat("of ", field.substr(0, 128), " is no text"));
      manifest.contents[field] = content.get<std::string>();
    }
  }
  const auto cursor = document.find("data_cursor");
  if (cursor == document.end() || !cursor->is_object()) return Bad("data_cursor", "is missing or no object");
  FUSIONLLM_RETURN_IF_ERROR(GetCount(*cursor, "samples_consumed", manifest.samples_consumed));
  const auto rng = document.find("rng");
  if (rng == document.end() || !rng->is_object() || !rng->contains("seed") || !rng->at("seed").is_number_unsigned()) {
    return Bad("rng.seed", "is missing or no whole number");
  }
  manifest.seed = rng->at("seed").get<uint64_t>();
  FUSIONLLM_RETURN_IF_ERROR(GetFiles(document, manifest.files));
  return manifest;
}

std::optional<int64_t> SequenceOfNewerFormat(const absl::Status& error) {
  const auto said = error.GetPayload(kNewerSequence);
  int64_t sequence = 0;
  return said.has_value() && absl::SimpleAtoi(std::string(*said), &sequence) ? std::optional(sequence) : std::nullopt;
}

absl::Status ManifestError(absl::string_view file, const absl::Status& error) {
  absl::Status named(error.code(), absl::StrCat(file, ": ", error.message()));
  error.ForEachPayload([&](absl::string_view type, const absl::Cord& payload) { named.SetPayload(type, payload); });
  return named;
}

absl::StatusOr<Manifest> LoadManifest(const std::string& folder) {
  const std::string path = absl::StrCat(folder, "/", kManifestName);
  std::error_code error;  // a missing one is reported below
  if (std::filesystem::exists(path, error) && !std::filesystem::is_regular_file(path, error)) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is no regular file"));
  }
  FUSIONLLM_ASSIGN_OR_RETURN(const std::string text, base::ReadSmallFile(path, kMaxManifestBytes));
  absl::StatusOr<Manifest> manifest = ParseManifest(text);
  if (!manifest.ok()) return ManifestError(path, manifest.status());
  const std::optional<int64_t> step = ParseStepFolderName(std::filesystem::path(folder).filename().string());
  if (step.has_value() && *step != manifest->step) {
    return absl::DataLossError(absl::StrCat(path, " is of step ", manifest->step, ", its folder of step ", *step));
  }
  return manifest;
}

}  // namespace fusionllm::checkpoint
