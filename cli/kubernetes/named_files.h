// The files of this machine that a job names by relative paths, which a cluster has not, and where each of them comes to lie in a volume.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/job/fusion_job.h"

namespace fusionllm::cli {

struct NamedFile {
  std::string path;      // absolute, on this machine
  std::string location;  // in the volume: "docs/data.md"
  int64_t bytes = 0;
};

inline constexpr char kDataField[] = "spec.data.path", kValidationField[] = "spec.data.validation.path",
                      kGraphField[] = "spec.model.graph.file", kStartField[] = "spec.model.init.from";

struct NamedPath {
  std::string field;     // "spec.data.path"
  size_t index = 0;      // in the list that the field is
  std::string path;      // absolute, on this machine
  std::string location;  // in the volume, of the file or folder itself
  std::vector<NamedFile> files;
};

// Those of data, validation, the graph and the start that are relative to `folder`, the job file's, and for which the job has no volume.
// Of a folder they are its files at any depth, in the order of their locations, but for hidden ones (a leading dot), which data do not
// have. Paths that leave `folder` by the same number of steps keep their places to each other: ../../README.md lies at README.md.
//
// Only names and sizes are read, and nothing beside what the job names. Blocks on the disk. Errors: InvalidArgument that begins with the
// field and names the path, for what is missing, a symbolic link, a special file or a folder without a file, cannot be looked at, or has a
// name that no volume could have.
absl::StatusOr<std::vector<NamedPath>> FindNamedFiles(const job::Spec& spec, const std::string& folder);

}  // namespace fusionllm::cli
