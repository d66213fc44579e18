// What an executor reads out of an Assign: its plan, checked against the job it built itself. Pure functions.
#pragma once

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/plan/plan.h"
#include "lib/runtime/edge_codec.h"
#include "lib/workload/workload.h"
#include "services/messages_fwd.h"

namespace fusionllm::services {

struct AssignedPlan {
  plan::Plan plan;
  std::vector<int> stage_of_op;  // by forward op
  runtime::LinkCodecs codecs;
  runtime::TiedCodecs tied_codecs;
  runtime::GuardSettings guard;                       // without what may be ordered while the stage runs
  std::optional<compression::CodecSpec> codec_limit;  // of all values
};

// Errors: InvalidArgument for a document that is no plan of this job, FailedPrecondition when it was made for another graph.
absl::StatusOr<AssignedPlan> ReadAssignedPlan(const v1::Assign& assign, const workload::Workload& workload);

}  // namespace fusionllm::services
