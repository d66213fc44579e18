// Planning over gRPC: a job and device profiles in, a plan document out (proto/fusionllm/v1/scheduler.proto).
//
// Stateless and thread-safe; a call plans on its handler thread for milliseconds to seconds. At most max_concurrent calls plan at a time,
// further ones are told RESOURCE_EXHAUSTED at once rather than queued behind work that their deadline may not outlive. A call that was
// cancelled or whose deadline has passed stops planning and gives its place up.
#pragma once

#include <atomic>

#include "absl/status/statusor.h"
#include "lib/wire/plan_json.h"
#include "proto/fusionllm/v1/scheduler.grpc.pb.h"
#include "services/scheduler/plan_probe.h"

namespace fusionllm::services {

struct SchedulerOptions {
  int max_concurrent = 4;
};

class SchedulerService final : public v1::Scheduler::Service {
 public:
  // `probe` must outlive the service.
  explicit SchedulerService(const PlanProbe& probe, SchedulerOptions options = {}) : options_(options), probe_(probe) {}

  // Ends the searches in progress and turns later calls away, all with UNAVAILABLE; returns at once.
  void Stop() { stopping_ = true; }
  // Calls that search for a plan now.
  int searching() const { return searching_; }

  grpc::Status Plan(grpc::ServerContext* context, const v1::PlanRequest* request, v1::PlanResponse* response) override;

 private:
  absl::Status StillWanted(const grpc::ServerContext& context) const;
  absl::StatusOr<wire::PlanAnswer> Answer(const grpc::ServerContext& context, const v1::PlanRequest& request);

  const SchedulerOptions options_;
  const PlanProbe& probe_;
  std::atomic<int> taken_{0};  // places of max_concurrent
  std::atomic<int> searching_{0};
  std::atomic<bool> stopping_{false};
};

}  // namespace fusionllm::services
