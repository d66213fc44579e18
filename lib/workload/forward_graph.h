// The model of a job as a graph. May read the file that spec.model.graph names; holds no state.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/job/fusion_job.h"
#include "lib/opdag/graph.h"

namespace fusionllm::workload {

// The job's forward graph, untyped for the batch, with the weights of its targets (opdag::AddTargetWeights); parameters are typed.
// `base_directory`: the job's relative paths start here. Errors: InvalidArgument naming the field or op; NotFound for a graph file.
absl::StatusOr<opdag::Graph> BuildForwardGraph(const job::FusionJob& job, const std::string& base_directory);

// The op that a finding begins with: "op 'fc' (linear): ..". Empty: it begins with none.
std::string NamedOp(absl::string_view finding);

// Where an op stands in the graph that a job brings along, to be put before a message: "model.dag:4:3: ". Empty: the model is of a family,
// or there is no such op. Reads the graph's file again.
std::string PlaceOfOp(const job::FusionJob& job, const std::string& base_directory, absl::string_view op);

}  // namespace fusionllm::workload
