// The model that a job means: preset and overrides resolved to concrete sizes.
//
// Pure functions, thread-safe.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "lib/job/fusion_job.h"
#include "lib/models/families.h"

namespace fusionllm::job {

struct ResolvedModel {
  const models::Family* family = nullptr;  // null: a graph of the job's own, spec.model.graph, whose source is still to be read
  models::ModelSizes sizes;                // of a family
};

// Null: of a graph of the job's own.
const models::Family* FamilyOf(const Model& model);

// Errors: InvalidArgument, one finding a line ("spec.model.config.nHead: ..."); never for a job that ParseFusionJob returned.
// Limit: 10^12 parameters.
absl::StatusOr<ResolvedModel> ResolveModel(const Spec& spec);

// "text or tokens", "images (cifar10, idx, shapes)".
std::string KindsOf(models::Samples samples);

}  // namespace fusionllm::job
