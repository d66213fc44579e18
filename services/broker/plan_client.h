// The broker's side of the scheduler: asks for plans, and asks again while the scheduler is away or busy.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/security/credentials.h>

#include <chrono>
#include <memory>
#include <string>

#include "lib/job/fusion_job.h"
#include "services/broker/run_loop.h"

namespace fusionllm::services {

// To a scheduler; connects when it is used.
std::shared_ptr<grpc::Channel> SchedulerChannel(const std::string& address, const std::shared_ptr<grpc::ChannelCredentials>& credentials);

struct PlanClientOptions {
  std::shared_ptr<grpc::Channel> channel;
  job::FusionJob job;
  std::string job_document;  // its text, for the first plan
  std::string base_directory;
  bool allow_join = false;                     // others join the run: spec.executors.min is how many to wait for and no more
  std::chrono::milliseconds timeout{240'000};  // for an answer, all attempts together; less than broker::kPlanSeconds
  std::chrono::milliseconds pause{500};        // between two attempts
};

// A scheduler that is killed while it plans is started again by what watches it, and one that is busy says so at once: both are asked
// again until `timeout` is over. All other errors are final. Errors: the scheduler's last, "scheduler: " before its message.
PlanFunction SchedulerPlanFunction(PlanClientOptions options);

}  // namespace fusionllm::services
