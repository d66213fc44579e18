// A resolved job and measured hardware turned into a plan document, or a refusal that says what is short.
//
// Pure but for the CPU clock (search_cpu_seconds): equal inputs and seed give equal documents, that field aside. Blocks for the search:
// milliseconds to a few seconds. Thread-safe.
#pragma once

#include "absl/status/statusor.h"
#include "lib/planning/profiles.h"
#include "lib/planning/request.h"
#include "lib/wire/plan_json.h"
#include "lib/workload/workload.h"

namespace fusionllm::planning {

// Every stage of the plan fits its device by the runtime's own memory sums; recompute `auto` turns to full where
// memory is short and making activations again is faster than having fewer micro-batches in flight.
// Errors: InvalidArgument for profiles that cannot be planned on, NotFound for an unknown strategy (naming the choices), Cancelled once
// options.stop says so. A job that cannot be placed is a RefusalDocument, not an error.
absl::StatusOr<wire::PlanAnswer> PlanWorkload(const workload::Workload& workload, const Profiles& profiles, const PlanOptions& options);

}  // namespace fusionllm::planning
