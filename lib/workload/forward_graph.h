// The model of a job as a graph. May read the file that spec.model.graph names; holds no state.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "lib/job/fusion_job.h"
#include "lib/opdag/graph.h"

namespace fusionllm::workload {

// The job's forward graph, untyped for the batch; parameters are typed. `base_directory`: the job's relative paths start here.
// Errors: InvalidArgument naming the field or op; NotFound for a graph file.
absl::StatusOr<opdag::Graph> BuildForwardGraph(const job::FusionJob& job, const std::string& base_directory);

}  // namespace fusionllm::workload
