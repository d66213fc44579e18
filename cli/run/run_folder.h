// The folder of one run: what its processes read, and what is left of it.
//
//   job.yaml, topology.yaml   resolved, canonical
//   security/                 the job's CA, a certificate and key for each process, the join token; new for each start
//   logs/NAME.log             stderr of each process
//   events.jsonl, trace.jsonl every line of the run
//   report.html
//
// Blocks on the disk.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "cli/run/folder_lock.h"
#include "lib/job/fusion_job.h"
#include "lib/job/topology.h"

namespace fusionllm::cli {

// Makes the folder and holds it: a second run in the same folder is refused while this object lives.
class RunFolder {
 public:
  // Errors: InvalidArgument (the place is taken by a file, or cannot be written to), FailedPrecondition (another run holds it),
  // ResourceExhausted (the disk is full).
  static absl::StatusOr<RunFolder> Open(const std::string& path);

  // Whether Open would succeed, as far as can be known without making or writing anything. Errors: as Open.
  static absl::Status Check(const std::string& path);

  const std::string& path() const { return path_; }  // absolute
  std::string operator/(absl::string_view name) const { return path_ + "/" + std::string(name); }

  // Errors: as Open.
  absl::Status WriteJob(const job::FusionJob& job, const std::optional<job::Topology>& topology) const;
  // Credentials for scheduler, broker, client and these devices. broker_hosts: under which devices of other machines dial the broker.
  // Answers the join token.
  absl::StatusOr<std::string> WriteSecurity(const std::string& job_name, const std::vector<std::string>& devices,
                                            const std::vector<std::string>& broker_hosts = {}) const;
  // Renews those that WriteSecurity has written and that are near their end (security::RenewFolder). Blocks on the file system. Errors:
  // those of loading the authority and of RenewFolder, which name the file.
  absl::Status RenewCertificates() const;
  absl::Status WriteFile(absl::string_view name, absl::string_view content) const;

  // What the folder says of an earlier run and every start writes again: job, topology, profiles, last metrics. Held in memory.
  struct Snapshot {
    std::map<std::string, std::optional<std::string>> files;  // nullopt: there was none
  };
  Snapshot TakeSnapshot() const;
  // Of a start that came to nothing beside a run that did not. What cannot be written stays as the start left it.
  void Restore(const Snapshot& earlier) const;

 private:
  RunFolder(std::string path, FolderLock lock) : path_(std::move(path)), lock_(std::move(lock)) {}

  std::string path_;
  FolderLock lock_;
};

// runs/NAME-yyyyMMdd-HHmmss below the working directory, in local time; with -2, -3, ... when that is taken.
std::string DefaultRunFolder(absl::string_view job_name);

}  // namespace fusionllm::cli
