#include "cli/kubernetes/prepared_files.h"

#include <algorithm>
#include <map>
#include <span>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/base/exit_code.h"
#include "lib/base/json_text.h"
#include "lib/base/source_file.h"
#include "lib/base/status_macros.h"
#include "lib/checkpoint/hashed_file.h"
#include "lib/data/text_check.h"
#include "lib/job/document.h"

namespace fusionllm::cli {
namespace {

using json = nlohmann::ordered_json;

constexpr int64_t kPodUser = 65532;  // as Pods of jobs are
constexpr size_t kDigestLength = 12;
constexpr size_t kMaxKeyName = 100;

// One that several fields name lies in the volume once.
struct File {
  NamedFile file;
  std::string field;
  std::string sha256, content;  // content: only where ConfigMaps are to hold it
  std::string key;              // in its ConfigMap
  size_t map = 0;               // which one
};
using Files = std::map<std::string, File>;  // by location

Files AllOf(const std::vector<NamedPath>& paths) {
  Files files;
  for (const NamedPath& named : paths) {
    for (const NamedFile& file : named.files) files.try_emplace(file.location, File{.file = file, .field = named.field});
  }
  return files;
}

bool AreSmall(const Files& files) {
  int64_t bytes = 0;
  for (const auto& [location, file] : files) bytes += file.file.bytes;
  return files.size() <= kMaxConfigMapsFiles && bytes <= kMaxConfigMapsBytes;
}

std::string DigestOf(absl::string_view text) {
  checkpoint::Sha256 hash;
  hash.Update(std::as_bytes(std::span(text.data(), text.size())));
  return hash.HexDigest();
}

absl::Status Read(File& file, bool keep) {
  const auto fail = [&](const absl::Status& status) {
    return base::AsBadInput(absl::Status(status.code(), absl::StrCat(file.field, ": ", std::string(status.message()))));
  };
  if (!keep) {
    absl::StatusOr<std::string> digest = checkpoint::Sha256OfFile(file.file.path);
    if (!digest.ok()) return fail(digest.status());
    file.sha256 = *std::move(digest);
    return absl::OkStatus();
  }
  absl::StatusOr<std::string> content = base::ReadSmallFile(file.file.path, kMaxConfigMapsBytes);
  if (!content.ok()) return fail(content.status());
  file.content = *std::move(content);
  file.sha256 = DigestOf(file.content);
  return absl::OkStatus();
}

// As text in YAML every reader takes it for the same; all else goes as base64.
bool IsPlainText(const std::string& content) {
  if (data::FirstNotUtf8(content, /*whole=*/true) != std::string::npos) return false;
  return base::ParseJson(job::JsonQuote(content)) == nlohmann::json(content);
}

// In the JSON of kubectl, at most: it escapes '<', '>' and '&', too.
int64_t AppliedBytes(const File& file) {
  int64_t bytes = static_cast<int64_t>(file.key.size()) + 8;
  if (!IsPlainText(file.content)) return bytes + static_cast<int64_t>(file.content.size() + 2) / 3 * 4;
  for (const char c : file.content) {
    const bool long_escape = c == '<' || c == '>' || c == '&' || static_cast<unsigned char>(c) == 0xE2;  // U+2028 begins so
    if (c == '"' || c == '\\' || c == '\n' || c == '\r' || c == '\t') {
      bytes += 2;
    } else {
      bytes += long_escape || absl::ascii_iscntrl(static_cast<unsigned char>(c)) ? 6 : 1;
    }
  }
  return bytes;
}

// "0007-README.md": what a key of a ConfigMap may have of the name, after a number that makes it the only one.
std::string KeyOf(size_t number, const std::string& location) {
  std::string name = location.substr(location.rfind('/') + 1).substr(0, kMaxKeyName);
  for (char& c : name) c = absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '-' ? c : '_';
  return absl::StrFormat("%04d-%s", number, name);
}

// Puts each file into a ConfigMap, in the order of their locations, and says how many there are; 0: one file is too large for any.
size_t Share(Files& files) {
  size_t number = 0, map = 0;
  int64_t used = 0;
  for (auto& [location, file] : files) {
    file.key = KeyOf(++number, location);
    const int64_t bytes = AppliedBytes(file);
    if (bytes > kMaxAppliedBytes) return 0;
    if (used + bytes > kMaxAppliedBytes) {
      ++map;
      used = 0;
    }
    used += bytes;
    file.map = map;
  }
  return map + 1;
}

json Metadata(const std::string& name, const std::string& job, const std::string& name_space) {
  json metadata = {{"name", name}};
  if (!name_space.empty()) metadata["namespace"] = name_space;
  metadata["labels"] = {{"app.kubernetes.io/instance", job}, {"app.kubernetes.io/managed-by", "fusionctl"}};
  return metadata;
}

class Maker {
 public:
  Maker(const std::string& job, const std::string& name_space, const Files& files) : job_(job), name_space_(name_space) {
    std::string sums;
    for (const auto& [location, file] : files) absl::StrAppend(&sums, file.sha256, "  ", location, "\n");
    base_ = absl::StrCat(job, "-files-", DigestOf(sums).substr(0, kDigestLength));
  }

  std::string MapName(size_t map, size_t maps) const { return maps == 1 ? base_ : absl::StrCat(base_, "-", map + 1); }

  json ConfigMap(const Files& files, size_t map, size_t maps) const {
    json object = {{"apiVersion", "v1"}, {"kind", "ConfigMap"}, {"metadata", Metadata(MapName(map, maps), job_, name_space_)}};
    // Its name is that of its contents; no node needs to watch it.
    object["immutable"] = true;
    for (const auto& [location, file] : files) {
      if (file.map != map) continue;
      if (IsPlainText(file.content)) {
        object["data"][file.key] = file.content;
      } else {
        object["binaryData"][file.key] = absl::Base64Escape(file.content);
      }
    }
    return object;
  }

  // With those files in it that `wanted` has.
  json ConfigMapVolume(const Files& files, const Files& wanted, size_t maps) const {
    json sources = json::array();
    for (size_t map = 0; map < maps; ++map) {
      json items = json::array();
      for (const auto& [location, file] : files) {
        if (file.map == map && wanted.contains(location)) items.push_back({{"key", file.key}, {"path", location}});
      }
      if (!items.empty()) sources.push_back({{"configMap", {{"name", MapName(map, maps)}, {"items", items}}}});
    }
    if (sources.size() == 1) return sources[0];
    return {{"projected", {{"sources", sources}}}};
  }

  json Claim(const Files& files, const ClaimOptions& options) const {
    int64_t bytes = 0;
    for (const auto& [location, file] : files) bytes += file.file.bytes;
    // A quarter, and some, for what file systems keep for themselves.
    const int64_t mebibytes = bytes / 4 * 5 / (int64_t{1} << 20) + 64;
    json claim = {{"apiVersion", "v1"}, {"kind", "PersistentVolumeClaim"}, {"metadata", Metadata(base_, job_, name_space_)}};
    claim["spec"]["accessModes"] = json::array({options.access_mode});
    if (!options.storage_class.empty()) claim["spec"]["storageClassName"] = options.storage_class;
    claim["spec"]["resources"]["requests"]["storage"] = absl::StrCat(mebibytes, "Mi");
    return claim;
  }

  json ClaimVolume() const { return {{"persistentVolumeClaim", {{"claimName", base_}}}}; }

  std::string FillingPodName() const { return absl::StrCat(base_, "-fill"); }

  // Meets the Pod security standard `restricted`, as Pods of jobs do, and is their user.
  json FillingPod(const std::string& image) const {
    const json mount = {{"name", "files"}, {"mountPath", kFillFolder}};
    const json container = {
        {"name", "fill"},
        {"image", image},
        {"command", json::array({"sleep", "86400"})},
        {"resources", {{"requests", {{"cpu", "10m"}, {"memory", "32Mi"}}}, {"limits", {{"cpu", "1"}, {"memory", "256Mi"}}}}},
        {"securityContext", {{"allowPrivilegeEscalation", false}, {"capabilities", {{"drop", json::array({"ALL"})}}}}},
        {"volumeMounts", json::array({mount})}};
    json volume = ClaimVolume();
    volume["name"] = "files";
    json pod = {{"apiVersion", "v1"}, {"kind", "Pod"}, {"metadata", Metadata(FillingPodName(), job_, name_space_)}};
    pod["spec"] = {{"restartPolicy", "Never"},
                   {"automountServiceAccountToken", false},
                   {"terminationGracePeriodSeconds", 1},
                   {"securityContext",
                    {{"runAsNonRoot", true},
                     {"runAsUser", kPodUser},
                     {"runAsGroup", kPodUser},
                     {"fsGroup", kPodUser},
                     {"seccompProfile", {{"type", "RuntimeDefault"}}}}},
                   {"containers", json::array({container})},
                   {"volumes", json::array({volume})}};
    return pod;
  }

 private:
  std::string job_, name_space_, base_;
};

Files OfGraph(const std::vector<NamedPath>& paths, bool graph) {
  std::vector<NamedPath> chosen;
  std::copy_if(paths.begin(), paths.end(), std::back_inserter(chosen),
               [&](const NamedPath& named) { return (named.field == kGraphField) == graph; });
  return AllOf(chosen);
}

}  // namespace

absl::StatusOr<PreparedFiles> PrepareFiles(const std::vector<NamedPath>& paths, const std::string& job, const std::string& name_space,
                                           const ClaimOptions& options) {
  PreparedFiles prepared;
  Files files = AllOf(paths);
  if (files.empty()) return prepared;
  const bool small = AreSmall(files);
  for (auto& [location, file] : files) FUSIONLLM_RETURN_IF_ERROR(Read(file, small));
  const size_t maps = small ? Share(files) : 0;
  const Maker maker(job, name_space, files);
  if (maps > 0) {
    for (size_t map = 0; map < maps; ++map) prepared.objects.push_back(maker.ConfigMap(files, map, maps));
  } else {
    prepared.objects = {maker.Claim(files, options), maker.FillingPod(options.image)};
    prepared.filling_pod = maker.FillingPodName();
  }
  const auto volume = [&](const Files& wanted) -> json {
    if (wanted.empty()) return nullptr;
    return maps > 0 ? maker.ConfigMapVolume(files, wanted, maps) : maker.ClaimVolume();
  };
  prepared.data_volume = volume(OfGraph(paths, /*graph=*/false));
  prepared.graph_volume = volume(OfGraph(paths, /*graph=*/true));
  return prepared;
}

}  // namespace fusionllm::cli
