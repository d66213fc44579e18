// Objects of the API group fusionllm.io, from and to the JSON of an API server.
//
// Errors are InvalidArgument with up to 20 findings, one a line, each with its path: "spec.training.steps: must be at least 0, got -3".
// Pure functions; nothing throws, whatever the JSON.
#pragma once

#include "absl/status/statusor.h"
#include "lib/job/fusion_job.h"
#include "lib/kubeapi/fusion_cluster.h"
#include "lib/kubeapi/fusion_job_status.h"
#include "nlohmann/json_fwd.hpp"

namespace fusionllm::kubeapi {

// What spec.managedBy may be besides absent where this project's operator is meant.
inline constexpr char kOperatorName[] = "fusionllm.io/fusion-operator";

// The job of a FusionJob object, by the rules of lib/job/parse.h: the schema that the API server checks by cannot say all of them, and an
// unknown field of the spec means that a newer operator is asked for. Of the metadata name, namespace, labels and annotations are read.
absl::StatusOr<job::FusionJob> FusionJobFromObject(const nlohmann::json& object);

// What the operator writes and reads back, perhaps written by a newer one: unknown fields are left alone. No status is an empty one.
absl::StatusOr<FusionJobStatus> FusionJobStatusFromObject(const nlohmann::json& object);
nlohmann::json ToJson(const FusionJobStatus& status);

// Unknown fields are left alone.
absl::StatusOr<FusionCluster> FusionClusterFromObject(const nlohmann::json& object);
nlohmann::json ToJson(const FusionClusterStatus& status);
// A whole object without its status, to create or apply.
nlohmann::json ToJson(const FusionCluster& cluster);

}  // namespace fusionllm::kubeapi
