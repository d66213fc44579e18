// What of its machine an executor opens to the run that it works for.
//
// An executor that a run starts itself, or that Kubernetes starts for it, has the rights of the run's owner. One that joins by itself
// is somebody else's: the job it is sent names paths, and what lies there would leave the machine as training data, as parameters or in the
// words of an error. So it is closed, but for what its owner has opened.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "lib/job/fusion_job.h"
#include "lib/workload/workload.h"

namespace fusionllm::services {

struct LocalAccess {
  bool closed = false;
  // Of a closed one; empty: none.
  std::string data_folder;     // training data and graph files may be read below it
  std::string shared_folder;   // in common with the run's machine at the same path: checkpoints below it are read and written there
  bool object_stores = false;  // with the credentials of this machine
};

// Whether `path` leads to `folder` or below it, with all links followed, were there something. Blocks.
bool IsInsideFolder(const std::string& path, const std::string& folder);

// OK, or PermissionDenied in words that say how to open what is closed. Before anything that the job names is opened.
absl::Status CheckGraphAccess(const LocalAccess& access, const job::FusionJob& job, const std::string& base_directory);
absl::Status CheckDataAccess(const LocalAccess& access, const workload::Workload& workload);
// Whether the folder of checkpoints, which this file marks, may be used.
bool MayUseSharedFolder(const LocalAccess& access, const std::string& shared_token_file);

}  // namespace fusionllm::services
