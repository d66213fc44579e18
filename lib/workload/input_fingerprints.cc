#include "lib/workload/input_fingerprints.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "lib/base/content_digest.h"
#include "lib/base/log.h"
#include "lib/base/object_uri.h"

namespace fusionllm::workload {
namespace {

namespace fs = std::filesystem;

void Add(const std::string& field, const fs::path& path, InputFingerprints& contents) {
  std::error_code error;
  std::vector<std::string> files;
  if (fs::is_directory(path, error)) {
    for (fs::directory_iterator entry(path, error); !error && entry != fs::directory_iterator(); entry.increment(error)) {
      std::error_code ignored;  // a link that leads nowhere is none of the files
      if (entry->is_regular_file(ignored)) files.push_back(entry->path().string());
    }
    std::sort(files.begin(), files.end());
  } else {
    files.push_back(path.string());
  }
  int64_t bytes = 0;
  for (const std::string& file : files) bytes += static_cast<int64_t>(fs::file_size(file, error));
  const absl::StatusOr<std::string> digest = base::ContentDigest(files);
  // A broker may not see the file of a graph; the executors do.
  if (!digest.ok() && !absl::IsNotFound(digest.status())) {
    base::Log(base::LogLevel::kWarning,
              absl::StrCat("a change of what ", field, " names will not be noticed: ", digest.status().message()));
  }
  if (!error && digest.ok()) contents[field] = absl::StrFormat("%d bytes, digest %s", bytes, *digest);
}

}  // namespace

InputFingerprints FingerprintInputs(const job::FusionJob& job, const std::string& base_directory) {
  InputFingerprints contents;
  const job::Model& model = job.spec.model;
  if (model.graph.has_value() && model.graph->file.has_value()) {
    Add("spec.model.graph.file", fs::path(base_directory) / *model.graph->file, contents);
  }
  if (model.init.from.has_value() && !base::IsUri(*model.init.from)) {
    Add("spec.model.init.from", fs::path(base_directory) / *model.init.from, contents);
  }
  return contents;
}

std::string ChangedInputs(const InputFingerprints& then, const InputFingerprints& now) {
  std::vector<std::string> changed;
  for (const auto& [field, content] : now) {
    const auto before = then.find(field);
    if (before == then.end() || before->second == content) continue;
    changed.push_back(absl::StrFormat("what %s names holds %s instead of %s", field, content, before->second));
  }
  return absl::StrJoin(changed, "; ");
}

}  // namespace fusionllm::workload
