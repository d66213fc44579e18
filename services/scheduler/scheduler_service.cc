#include "services/scheduler/scheduler_service.h"

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/job/parse.h"
#include "lib/planning/plan_workload.h"
#include "lib/wire/profile_json.h"

namespace fusionllm::services {
namespace {

class Slot {
 public:
  Slot(std::atomic<int>& taken, int limit) : taken_(taken), granted_(taken.fetch_add(1) < limit) {}
  ~Slot() { taken_.fetch_sub(1); }
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;
  bool granted() const { return granted_; }

 private:
  std::atomic<int>& taken_;
  const bool granted_;
};

// A caller that has gone or whose time is up needs no answer; asked before each costly part.
absl::Status StillWanted(const grpc::ServerContext& context) {
  if (context.IsCancelled()) return absl::CancelledError("the caller has cancelled");
  if (context.deadline() < std::chrono::system_clock::now()) return absl::DeadlineExceededError("the caller's deadline has passed");
  return absl::OkStatus();
}

absl::StatusOr<std::string> Answer(const grpc::ServerContext& context, const v1::PlanRequest& request) {
  FUSIONLLM_RETURN_IF_ERROR(StillWanted(context));
  FUSIONLLM_ASSIGN_OR_RETURN(const job::FusionJob job, job::ParseFusionJob(request.job_document(), "job_document"));
  FUSIONLLM_ASSIGN_OR_RETURN(wire::ProfilesDocument profiles, wire::ParseProfiles(request.profiles_document()));
  FUSIONLLM_ASSIGN_OR_RETURN(const auto workload, workload::Resolve(job, request.base_directory()));
  FUSIONLLM_RETURN_IF_ERROR(StillWanted(context));
  const planning::PlanOptions options{.strategy = request.strategy(),
                                      .seed = request.seed(),
                                      .exclude = {request.exclude().begin(), request.exclude().end()},
                                      .data_device = request.data_device()};
  FUSIONLLM_ASSIGN_OR_RETURN(const wire::PlanAnswer answer,
                             planning::PlanWorkload(*workload, planning::ProfilesFromDocument(std::move(profiles)), options));
  return wire::PrintPlan(answer);
}

// What the caller asked for cannot be had as asked: whichever library said so, the caller must change the request.
grpc::Status StatusOf(const absl::Status& status) {
  const bool callers_fault = absl::IsNotFound(status) || absl::IsInvalidArgument(status) || absl::IsOutOfRange(status);
  const auto code = callers_fault ? grpc::StatusCode::INVALID_ARGUMENT : static_cast<grpc::StatusCode>(status.code());
  return grpc::Status(code, std::string(status.message()));
}

}  // namespace

grpc::Status SchedulerService::Plan(grpc::ServerContext* context, const v1::PlanRequest* request, v1::PlanResponse* response) {
  const Slot slot(planning_, options_.max_concurrent);
  if (!slot.granted()) {
    return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED,
                        absl::StrCat("busy with ", options_.max_concurrent, " plans; try again in a moment"));
  }
  absl::StatusOr<std::string> document = Answer(*context, *request);
  if (!document.ok()) return StatusOf(document.status());
  response->set_plan_document(*std::move(document));
  return grpc::Status::OK;
}

}  // namespace fusionllm::services
