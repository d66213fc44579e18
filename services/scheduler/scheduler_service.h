// Planning over gRPC: a job and device profiles in, a plan document out (proto/fusionllm/v1/scheduler.proto).
//
// Stateless and thread-safe; a call plans on its handler thread for milliseconds to seconds. At most max_concurrent calls plan at a time,
// further ones are told RESOURCE_EXHAUSTED at once rather than queued behind work that their deadline may not outlive.
#pragma once

#include <atomic>

#include "proto/fusionllm/v1/scheduler.grpc.pb.h"

namespace fusionllm::services {

struct SchedulerOptions {
  int max_concurrent = 4;
};

class SchedulerService final : public v1::Scheduler::Service {
 public:
  explicit SchedulerService(SchedulerOptions options = {}) : options_(options) {}

  grpc::Status Plan(grpc::ServerContext* context, const v1::PlanRequest* request, v1::PlanResponse* response) override;

 private:
  const SchedulerOptions options_;
  std::atomic<int> planning_{0};
};

}  // namespace fusionllm::services
