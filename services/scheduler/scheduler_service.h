// Planning over gRPC: a job and device profiles in, a plan, a decision to leave one, or its reasons out
// (proto/fusionllm/v1/scheduler.proto).
//
// Stateless and thread-safe; a call plans on its handler thread for milliseconds to seconds. At most max_concurrent calls plan at a time,
// further ones get RESOURCE_EXHAUSTED at once rather than queued behind work that their deadline may not outlive. A call that was
// cancelled or whose deadline has passed stops planning and gives its place up.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/planning/profiles.h"
#include "lib/planning/request.h"
#include "lib/workload/workload.h"
#include "proto/fusionllm/v1/scheduler.grpc.pb.h"
#include "services/scheduler/plan_metrics.h"

namespace fusionllm::services {

struct SchedulerOptions {
  int max_concurrent = 4;
};

class SchedulerService final : public v1::Scheduler::Service {
 public:
  // `plan_metrics` must outlive the service.
  explicit SchedulerService(const PlanMetrics& plan_metrics, SchedulerOptions options = {})
      : options_(options), plan_metrics_(plan_metrics) {}

  // Ends the searches in progress and turns later calls away, all with UNAVAILABLE; returns at once.
  void Stop() { stopping_ = true; }
  // Calls that search for a plan now.
  int searching() const { return searching_; }

  grpc::Status Plan(grpc::ServerContext* context, const v1::PlanRequest* request, v1::PlanResponse* response) override;
  grpc::Status Replan(grpc::ServerContext* context, const v1::ReplanRequest* request, v1::ReplanResponse* response) override;
  grpc::Status Explain(grpc::ServerContext* context, const v1::ExplainRequest* request, v1::ExplainResponse* response) override;
  grpc::Status Simulate(grpc::ServerContext* context, const v1::SimulateRequest* request, v1::SimulateResponse* response) override;

 private:
  // What a question is about, read and resolved.
  struct PlanInput {
    std::unique_ptr<workload::Workload> workload;
    planning::Profiles profiles;
    planning::PlanOptions options;
  };
  // Whether the answer is a refusal.
  using PlanCall = std::function<absl::StatusOr<bool>()>;

  absl::Status CheckNotCancelled(const grpc::ServerContext& context) const;
  absl::StatusOr<PlanInput> Read(const grpc::ServerContext& context, const v1::PlanRequest& request) const;
  // `search` counted, and ended with the reason for which its client is gone.
  template <typename Answer>
  absl::StatusOr<Answer> Search(const grpc::ServerContext& context, const std::function<absl::StatusOr<Answer>()>& search);
  // One of at most max_concurrent answers, reported to the metrics and the log. `what`: "a plan".
  grpc::Status Serve(absl::string_view what, const PlanCall& question);

  const SchedulerOptions options_;
  const PlanMetrics& plan_metrics_;
  std::atomic<int> taken_{0};  // places of max_concurrent
  std::atomic<int> searching_{0};
  std::atomic<bool> stopping_{false};
};

}  // namespace fusionllm::services
