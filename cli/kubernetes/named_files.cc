#include "cli/kubernetes/named_files.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/base/object_uri.h"
#include "lib/base/printable_text.h"
#include "lib/base/status_macros.h"
#include "lib/data/files.h"

namespace fusionllm::cli {
namespace {

namespace fs = std::filesystem;

absl::Status Wrong(const std::string& field, const fs::path& path, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", base::PrintableText(path.string()), " ", why));
}

// A path as it is written: so many folders up from the job's, then down.
struct Route {
  int up = 0;
  fs::path down;
};

Route RouteOf(const std::string& written) {
  Route route;
  for (const fs::path& part : fs::path(written).lexically_normal()) {
    if (part == "..") {
      ++route.up;
    } else if (!part.empty() && part != ".") {
      route.down /= part;
    }
  }
  return route;
}

struct Written {
  std::string field;
  size_t index = 0;
  std::string path;
};

std::vector<Written> RelativePaths(const job::Spec& spec) {
  std::vector<Written> found;
  const auto add = [&found](const char* field, size_t index, const std::string& path) {
    if (!base::IsUri(path) && !absl::StartsWith(path, "/")) found.push_back({field, index, path});
  };
  // With a volume the job is one for a cluster already: its relative paths lie there.
  if (!spec.data.volume.json.empty()) return found;
  for (size_t i = 0; i < spec.data.path.size(); ++i) add(kDataField, i, spec.data.path[i]);
  if (spec.data.validation.has_value()) {
    const std::vector<std::string>& paths = spec.data.validation->path;
    for (size_t i = 0; i < paths.size(); ++i) add(kValidationField, i, paths[i]);
  }
  if (spec.model.init.from.has_value()) add(kStartField, 0, *spec.model.init.from);
  const auto& graph = spec.model.graph;
  if (graph.has_value() && graph->file.has_value() && graph->volume.json.empty()) add(kGraphField, 0, *graph->file);
  return found;
}

// What a path leads to that is no link, nor anything else that a copy would not be the same as.
absl::StatusOr<fs::file_type> TypeOf(const std::string& field, const fs::path& path) {
  std::error_code error;
  const fs::file_type type = fs::symlink_status(path, error).type();
  switch (type) {
    case fs::file_type::regular:
    case fs::file_type::directory:
      return type;
    case fs::file_type::not_found:
      return Wrong(field, path, "does not exist");
    case fs::file_type::symlink:
      return Wrong(field, path, "is a symbolic link: name the file or folder that it leads to");
    case fs::file_type::none:
      return Wrong(field, path, absl::StrCat("cannot be looked at: ", error.message()));
    default:
      return Wrong(field, path, "is neither a file nor a folder");
  }
}

class Finder {
 public:
  explicit Finder(std::string field) : field_(std::move(field)) {}

  absl::Status Add(const fs::path& path, const fs::path& location, int depth) {
    // Such a name would break the commands and comments that it stands in.
    if (base::PrintableText(location.string()) != location.string()) {
      return Wrong(field_, path, "has a name that is not UTF-8 or has control characters");
    }
    FUSIONLLM_ASSIGN_OR_RETURN(const fs::file_type type, TypeOf(field_, path));
    if (type == fs::file_type::directory) return AddFolder(path, location, depth);
    std::error_code error;
    const auto bytes = static_cast<int64_t>(fs::file_size(path, error));
    if (error) return Wrong(field_, path, absl::StrCat("cannot be looked at: ", error.message()));
    if (files_.size() >= data::kMaxFiles) return Wrong(field_, path, absl::StrCat("is one of more than ", data::kMaxFiles, " files"));
    files_.push_back({path.string(), location.string(), bytes});
    return absl::OkStatus();
  }

  std::vector<NamedFile> Take() { return std::move(files_); }

 private:
  absl::Status AddFolder(const fs::path& path, const fs::path& location, int depth) {
    if (depth > data::kMaxFolderDepth) return Wrong(field_, path, absl::StrCat("is more than ", data::kMaxFolderDepth, " levels deep"));
    std::set<fs::path> names;
    std::error_code error;
    fs::directory_iterator entry(path, error);
    for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
      const fs::path name = entry->path().filename();
      if (!absl::StartsWith(name.string(), ".")) names.insert(name);
    }
    if (error) return Wrong(field_, path, absl::StrCat("cannot be listed: ", error.message()));
    for (const fs::path& name : names) FUSIONLLM_RETURN_IF_ERROR(Add(path / name, location / name, depth + 1));
    return absl::OkStatus();
  }

  std::string field_;
  std::vector<NamedFile> files_;
};

absl::StatusOr<NamedPath> Find(const Written& written, const fs::path& folder, bool same_start) {
  const Route route = RouteOf(written.path);
  fs::path here = folder;
  for (int i = 0; i < route.up; ++i) here = here.parent_path();
  for (const fs::path& part : route.down) {
    here /= part;
    FUSIONLLM_RETURN_IF_ERROR(TypeOf(written.field, here).status());
  }
  NamedPath named{.field = written.field, .index = written.index, .path = here.string()};
  // Not at the top itself, where what other paths name would be found, too.
  const bool keeps_place = !route.down.empty() && (same_start || route.up == 0);
  const fs::path location = keeps_place ? route.down : fs::path(absl::StrCat("up-", route.up)) / route.down;
  named.location = (location.has_filename() ? location : location.parent_path()).string();
  Finder finder(written.field);
  FUSIONLLM_RETURN_IF_ERROR(finder.Add(here, named.location, 1));
  named.files = finder.Take();
  if (named.files.empty()) return Wrong(written.field, here, "holds no file");
  return named;
}

// Two files cannot lie at one place: of folders that are called like what this makes of steps up.
absl::Status CheckPlaces(const std::vector<NamedPath>& paths) {
  std::map<std::string, std::string> sources;
  for (const NamedPath& named : paths) {
    for (const NamedFile& file : named.files) {
      const auto& [at, added] = sources.emplace(file.location, file.path);
      if (added || at->second == file.path) continue;
      return Wrong(named.field, file.path,
                   absl::StrCat("would lie in the volume where ", at->second, " does: give one of them another name"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<NamedPath>> FindNamedFiles(const job::Spec& spec, const std::string& folder) {
  const std::vector<Written> written = RelativePaths(spec);
  std::set<int> starts;
  for (const Written& one : written) starts.insert(RouteOf(one.path).up);
  std::vector<NamedPath> found;
  for (const Written& one : written) {
    FUSIONLLM_ASSIGN_OR_RETURN(NamedPath named, Find(one, folder, starts.size() == 1));
    found.push_back(std::move(named));
  }
  FUSIONLLM_RETURN_IF_ERROR(CheckPlaces(found));
  return found;
}

}  // namespace fusionllm::cli
