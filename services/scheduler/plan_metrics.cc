#include "services/scheduler/plan_metrics.h"

namespace fusionllm::services {
namespace {

const char* OutcomeOf(const grpc::Status& status, bool refused) {
  switch (status.error_code()) {
    case grpc::StatusCode::OK:
      return refused ? "refused" : "planned";
    case grpc::StatusCode::INVALID_ARGUMENT:
      return "invalid";
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return "busy";
    case grpc::StatusCode::CANCELLED:
      return "cancelled";
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return "deadline_exceeded";
    case grpc::StatusCode::UNAVAILABLE:
      return "stopping";
    default:
      return "failed";
  }
}

}  // namespace

PlanMetrics::PlanMetrics(metrics::Registry& registry)
    : plans_(registry.AddCounter({"plans_total",
                                  "Plan requests answered, by what became of them: planned, refused, invalid, busy, cancelled, "
                                  "deadline_exceeded, stopping, failed.",
                                  {"outcome"}})),
      seconds_(registry.AddHistogram({"plan_seconds", "From a plan request to its answer, of those that were planned or refused."},
                                     metrics::ExponentialBuckets(0.001, 2, 18))),
      in_flight_(registry.AddGauge({"plans_in_flight", "Requests that search for a plan now."})) {
  in_flight_.Set(0);
}

void PlanMetrics::CountCall(const grpc::Status& status, bool refused, double seconds) const {
  plans_.Add(1, {OutcomeOf(status, refused)});
  if (status.ok()) seconds_.Observe(seconds);
}

}  // namespace fusionllm::services
