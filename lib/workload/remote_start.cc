#include "lib/workload/remote_start.h"

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_replace.h"
#include "lib/archive/fetch_headers.h"
#include "lib/base/output_file.h"
#include "lib/base/status_macros.h"
#include "lib/checkpoint/reader.h"
#include "lib/job/initial_model.h"
#include "lib/workload/stored_parameters.h"

namespace fusionllm::workload {
namespace {

absl::StatusOr<std::vector<std::string>> CheckOutline(const job::FusionJob& job, const opdag::Graph& graph, const std::string& path) {
  FUSIONLLM_RETURN_IF_ERROR(job::CheckInitialModel(job, path));
  FUSIONLLM_ASSIGN_OR_RETURN(const checkpoint::CheckpointReader start, checkpoint::CheckpointReader::Open(path));
  return CheckStart(job, graph, start);
}

}  // namespace

absl::StatusOr<std::vector<std::string>> CheckRemoteStart(const job::FusionJob& job, const opdag::Graph& graph,
                                                          objectstore::ObjectStore& store, const base::ObjectUri& uri) {
  std::error_code error;
  const std::filesystem::path temporary = std::filesystem::temp_directory_path(error);
  if (error) return base::FileError(error.value(), "find", "the folder for temporary files");
  std::string folder = (temporary / "fusionllm-start-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) return base::FileError(errno, "create", folder);
  const absl::Cleanup remove = [&] { base::RemoveTree(folder).IgnoreError(); };
  FUSIONLLM_ASSIGN_OR_RETURN(const std::string path, archive::FetchHeaders(store, uri, folder));
  absl::StatusOr<std::vector<std::string>> fits = CheckOutline(job, graph, path);
  // The reader knows the object, and not the file here.
  const std::vector<std::pair<std::string, std::string>> names = {{path, base::ToString(uri)}};
  if (!fits.ok()) return absl::Status(fits.status().code(), absl::StrReplaceAll(fits.status().message(), names));
  for (std::string& warning : *fits) warning = absl::StrReplaceAll(warning, names);
  return fits;
}

absl::StatusOr<std::vector<std::string>> CheckRemoteStart(const job::FusionJob& job, const opdag::Graph& graph, const std::string& uri,
                                                          std::function<void(const std::string& sentence)> retried) {
  FUSIONLLM_ASSIGN_OR_RETURN(const base::ObjectUri object, base::ParseObjectUri(uri));
  FUSIONLLM_ASSIGN_OR_RETURN(objectstore::StoreSettings settings, objectstore::SettingsFrom(objectstore::ProcessEnvironment));
  objectstore::ObjectStore store(std::move(settings), {.retried = std::move(retried)});
  return CheckRemoteStart(job, graph, store, object);
}

}  // namespace fusionllm::workload
