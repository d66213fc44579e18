// The scheduler service's Plan by gRPC, without gRPC's library: one call by HTTP/2, with libcurl, which is here anyway
// (docs/design/adr/0010).
//
// The message is PlanRequest of proto/fusionllm/v1/scheduler.proto, whose field numbers stand in plan_call.cc; a test asks the real
// service. Without TLS: for a scheduler on loopback, in the same Pod.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "operator/placement/hint_cache.h"

namespace fusionllm::op::placement {

// Asks the scheduler at HOST:PORT. Errors: the service's own, with its code; Unavailable when it cannot be reached; DeadlineExceeded.
HintCache::Ask SchedulerPlanCall(const std::string& address);

// The message of a gRPC call, and back. InvalidArgument: it is none.
std::string EncodePlanCall(const PlacementQuery& query);
absl::StatusOr<std::string> DecodePlanAnswer(absl::string_view body);

}  // namespace fusionllm::op::placement
