#include "cli/commands/remote_start.h"

#include <cstdint>
#include <cstdio>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "lib/archive/fetch_headers.h"
#include "lib/base/log.h"
#include "lib/base/object_uri.h"
#include "lib/base/status_macros.h"
#include "lib/checkpoint/manifest.h"
#include "lib/objectstore/object_store.h"
#include "lib/objectstore/settings.h"

namespace fusionllm::cli {
namespace {

constexpr int64_t kMaxConfigBytes = 1 << 20;

using Found = absl::StatusOr<std::optional<job::InitialModel>>;

// Of the store, not of what lies there.
absl::Status Unanswered(const absl::Status& status) { return absl::UnavailableError(status.message()); }

Found Read(const std::string& uri) {
  absl::StatusOr<objectstore::StoreSettings> settings = objectstore::SettingsFrom(objectstore::ProcessEnvironment);
  if (!settings.ok()) return Unanswered(settings.status());
  objectstore::ObjectStore store(*std::move(settings), {.retried = PrintRetry});
  const bool file = absl::EndsWith(uri, ".safetensors");
  const std::string folder(file ? absl::string_view(uri).substr(0, uri.rfind('/')) : absl::StripSuffix(uri, "/"));
  const auto read = [&](const std::string& name, int64_t bytes_max) -> absl::StatusOr<std::string> {
    FUSIONLLM_ASSIGN_OR_RETURN(const base::ObjectUri object, base::ParseObjectUri(name));
    return store.Read(object, bytes_max);
  };
  if (!file) {
    const absl::StatusOr<base::ObjectUri> place = base::ParseObjectUri(folder);
    if (!place.ok()) return Unanswered(place.status());
    const absl::StatusOr<base::ObjectUri> newest = archive::FollowLatest(store, *place);  // of a folder of checkpoints
    if (absl::IsInvalidArgument(newest.status())) return newest.status();
    if (!newest.ok()) return Unanswered(newest.status());
    const std::string name = base::ToString(base::JoinUri(*newest, checkpoint::kManifestName));
    const absl::StatusOr<std::string> manifest = read(name, checkpoint::kMaxManifestBytes);
    if (manifest.ok()) return job::InitialModelFromManifest(*manifest, name);
    if (!absl::IsNotFound(manifest.status())) return Unanswered(manifest.status());
  }
  const std::string name = absl::StrCat(folder, "/config.json");
  const absl::StatusOr<std::string> config = read(name, kMaxConfigBytes);
  if (config.ok()) return job::InitialModelFromConfig(*config, name);
  if (!absl::IsNotFound(config.status())) return Unanswered(config.status());
  return std::nullopt;
}

}  // namespace

void PrintRetry(const std::string& sentence) { base::Log(base::LogLevel::kWarning, sentence); }

Found ReadRemoteStart(const std::string& uri) {
  static auto& known = *new std::map<std::string, Found>();  // a job is loaded again for every variant of it; one thread does
  const auto found = known.find(uri);
  if (found != known.end()) return found->second;
  Found start = Read(uri);
  if (!start.ok() && !absl::IsInvalidArgument(start.status())) {
    std::fprintf(
        stderr,
        "fusionctl: warning: spec.model.init.from: what model %s is cannot be read (%s): sizes that the job leaves out are its defaults\n",
        uri.c_str(), std::string(start.status().message()).c_str());
    start = std::nullopt;
  }
  return known.emplace(uri, std::move(start)).first->second;
}

}  // namespace fusionllm::cli
