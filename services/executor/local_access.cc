#include "services/executor/local_access.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "lib/base/object_uri.h"
#include "lib/base/status_macros.h"

namespace fusionllm::services {
namespace {

namespace fs = std::filesystem;

absl::Status Closed(absl::string_view what, absl::string_view path, absl::string_view remedy) {
  return absl::PermissionDeniedError(absl::StrCat("this machine joined the run by itself and gives it no ", what, " (",
                                                  absl::CHexEscape(path), "): join with ", remedy, " to allow that"));
}

absl::Status CheckFile(const LocalAccess& access, absl::string_view what, const std::string& base_directory, const std::string& file) {
  const std::string path = (fs::path(base_directory) / file).string();
  if (!access.data_folder.empty() && IsInsideFolder(path, access.data_folder)) return absl::OkStatus();
  return Closed(what, path, access.data_folder.empty() ? "--data DIR" : absl::StrCat("another --data than ", access.data_folder));
}

}  // namespace

bool IsInsideFolder(const std::string& path, const std::string& folder) {
  std::error_code error;
  const fs::path at = fs::weakly_canonical(path, error);
  if (error) return false;
  const fs::path top = fs::canonical(folder, error);
  if (error) return false;
  return std::mismatch(top.begin(), top.end(), at.begin(), at.end()).first == top.end();
}

absl::Status CheckGraphAccess(const LocalAccess& access, const job::FusionJob& job, const std::string& base_directory) {
  if (!access.closed || !job.spec.model.graph.has_value() || !job.spec.model.graph->file.has_value()) return absl::OkStatus();
  return CheckFile(access, "graph file", base_directory, *job.spec.model.graph->file);
}

absl::Status CheckDataAccess(const LocalAccess& access, const workload::Workload& workload) {
  if (!access.closed) return absl::OkStatus();
  for (const std::vector<std::string>* const paths : {&workload.data.paths, &workload.data.validation_paths}) {
    for (const std::string& path : *paths) {
      if (!base::IsUri(path)) {
        FUSIONLLM_RETURN_IF_ERROR(CheckFile(access, "training data", workload.base_directory, path));
      } else if (!access.object_stores) {
        return Closed("credentials for object stores", path, "--object-stores");
      }
    }
  }
  return absl::OkStatus();
}

bool MayUseSharedFolder(const LocalAccess& access, const std::string& shared_token_file) {
  if (!access.closed) return true;
  return !access.shared_folder.empty() && IsInsideFolder(shared_token_file, access.shared_folder);
}

}  // namespace fusionllm::services
