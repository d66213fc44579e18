#include "services/executor/data_fetcher.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "lib/base/object_uri.h"
#include "lib/base/output_file.h"
#include "lib/base/status_macros.h"
#include "lib/objectstore/fetch.h"

namespace fusionllm::services {
namespace {

constexpr char kScratchVariable[] = "FUSIONLLM_SCRATCH";

}  // namespace

bool IsInObjectStore(const data::DatasetConfig& config) {
  return std::any_of(config.paths.begin(), config.paths.end(), base::IsUri) ||
         std::any_of(config.validation_paths.begin(), config.validation_paths.end(), base::IsUri);
}

Scratch::~Scratch() {
  if (!temporary_.empty()) base::RemoveTree(temporary_).IgnoreError();
}

absl::StatusOr<std::string> Scratch::Folder(const std::string& shared, const objectstore::Environment& environment) {
  if (!folder_.empty()) return folder_;
  if (const std::optional<std::string> given = environment(kScratchVariable); given.has_value() && !given->empty()) {
    folder_ = *given;
  } else if (!shared.empty()) {
    folder_ = shared;
  } else {
    std::error_code error;
    std::string made = (std::filesystem::temp_directory_path(error) / "fusionllm-objects-XXXXXX").string();
    if (error || mkdtemp(made.data()) == nullptr) return base::FileError(errno, "create", made);
    folder_ = temporary_ = made;
  }
  return folder_;
}

absl::Status FetchData(data::DatasetConfig& config, const FetchOptions& options) {
  FUSIONLLM_ASSIGN_OR_RETURN(objectstore::StoreSettings settings, objectstore::SettingsFrom(options.environment));
  objectstore::ObjectStore store(std::move(settings), {.progress = options.progress, .stop = options.stop, .retried = options.retried});
  for (std::vector<std::string>* const paths : {&config.paths, &config.validation_paths}) {
    for (std::string& path : *paths) {
      if (!base::IsUri(path)) continue;
      FUSIONLLM_ASSIGN_OR_RETURN(const base::ObjectUri uri, base::ParseObjectUri(path));
      FUSIONLLM_ASSIGN_OR_RETURN(path, objectstore::Fetch(store, uri, options.scratch));
    }
  }
  return absl::OkStatus();
}

}  // namespace fusionllm::services
