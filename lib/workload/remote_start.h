// The check of stored_parameters.h for a start that lies in an object store, before it is fetched.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/base/object_uri.h"
#include "lib/job/fusion_job.h"
#include "lib/objectstore/object_store.h"
#include "lib/opdag/graph.h"

namespace fusionllm::workload {

// Whether what `uri` names can start the job, by the headers of its files: names, shapes and dtypes, all that differs at once; and heads,
// where a manifest or a config.json says how many there are. Whether a head that the job ties is the embedding cannot be known without the
// data: one who has fetched them looks. Blocks; keeps files in a temporary folder meanwhile. Returns and errors: as CheckStart, and those
// of archive::FetchHeaders.
absl::StatusOr<std::vector<std::string>> CheckRemoteStart(const job::FusionJob& job, const opdag::Graph& graph,
                                                          objectstore::ObjectStore& store, const base::ObjectUri& uri);

// The same with the settings and credentials of this process's environment; `retried` gets what the store is asked again
// (objectstore::StoreOptions). Errors also where these, or `uri`, are none.
absl::StatusOr<std::vector<std::string>> CheckRemoteStart(const job::FusionJob& job, const opdag::Graph& graph, const std::string& uri,
                                                          std::function<void(const std::string& sentence)> retried);

}  // namespace fusionllm::workload
