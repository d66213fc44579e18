// A job of `fusionctl run` as a cluster takes it: the FusionJob, and the objects that bring it the files which it names on this machine.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/kubernetes/prepared_files.h"

namespace fusionllm::cli {

struct PrepareOptions {
  std::string job;  // file
  std::vector<std::string> overrides;
  std::string name_space;    // empty: the job's own, if it says one
  bool without_job = false;  // the other objects alone: what a member cluster needs of them
  ClaimOptions claim;
};

struct PreparedJob {
  std::vector<nlohmann::ordered_json> documents;  // in the order in which they are applied
  // How the claim is filled and the job then begun, as a shell takes it; empty: nothing is left to do.
  std::vector<std::string> commands;
  std::vector<std::string> notes;  // what a user should know of the job in a cluster, a sentence each
};

// The job as it is written, with what is not the same in a cluster changed: relative paths of data, graph and start are those in a volume,
// and sizes that a local start says stand in the job. Where a claim has to be filled first the job is suspended. One that names no
// relative path, or has spec.data.volume already, stays as it is. The same files give the same documents.
//
// Blocks on the disk; reads the job and what it names. Errors: those of job::LoadFusionJob and FindNamedFiles, with the place of the field
// in the job; InvalidArgument for a namespace other than the job's, and for a path that
// would have to be copied and that `kubectl cp` does not take.
absl::StatusOr<PreparedJob> PrepareJob(const PrepareOptions& options);

// A stream of YAML documents for `kubectl apply -f -`, with the commands as comments in front.
std::string ToYamlStream(const PreparedJob& prepared);

}  // namespace fusionllm::cli
