#include "services/scheduler/scheduler_service.h"

#include <chrono>
#include <string>
#include <utility>
#include <variant>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/job/parse.h"
#include "lib/planning/plan_workload.h"
#include "lib/wire/profile_json.h"

namespace fusionllm::services {
namespace {

// One more of `count` while it lives.
class Counted {
 public:
  explicit Counted(std::atomic<int>& count) : count_(count), before_(count.fetch_add(1)) {}
  ~Counted() { count_.fetch_sub(1); }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  int before() const { return before_; }

 private:
  std::atomic<int>& count_;
  const int before_;
};

// What the caller asked for cannot be had as asked: whichever library said so, the caller must change the request.
grpc::Status StatusOf(const absl::Status& status) {
  const bool callers_fault = absl::IsNotFound(status) || absl::IsInvalidArgument(status) || absl::IsOutOfRange(status);
  const auto code = callers_fault ? grpc::StatusCode::INVALID_ARGUMENT : static_cast<grpc::StatusCode>(status.code());
  return grpc::Status(code, std::string(status.message()));
}

}  // namespace

// A caller that has gone or whose time is up needs no answer. Asked before each costly part, and all through a search.
absl::Status SchedulerService::StillWanted(const grpc::ServerContext& context) const {
  if (stopping_) return absl::UnavailableError("the scheduler is stopping");
  // The end of a call's time also cancels it: asked first, so that it is told apart.
  if (context.deadline() < std::chrono::system_clock::now()) return absl::DeadlineExceededError("the caller's deadline has passed");
  if (context.IsCancelled()) return absl::CancelledError("the caller has cancelled");
  return absl::OkStatus();
}

absl::StatusOr<wire::PlanAnswer> SchedulerService::Answer(const grpc::ServerContext& context, const v1::PlanRequest& request) {
  FUSIONLLM_RETURN_IF_ERROR(StillWanted(context));
  FUSIONLLM_ASSIGN_OR_RETURN(const job::FusionJob job, job::ParseFusionJob(request.job_document(), "job_document"));
  FUSIONLLM_ASSIGN_OR_RETURN(wire::ProfilesDocument profiles, wire::ParseProfiles(request.profiles_document()));
  FUSIONLLM_ASSIGN_OR_RETURN(const auto workload, workload::Resolve(job, request.base_directory()));
  FUSIONLLM_RETURN_IF_ERROR(StillWanted(context));
  const planning::PlanOptions options{.strategy = request.strategy(),
                                      .seed = request.seed(),
                                      .exclude = {request.exclude().begin(), request.exclude().end()},
                                      .data_device = request.data_device(),
                                      .stop = [&] { return !StillWanted(context).ok(); }};
  const Counted search(searching_);
  probe_.SearchBegins();
  absl::StatusOr<wire::PlanAnswer> answer = planning::PlanWorkload(*workload, planning::ProfilesFromDocument(std::move(profiles)), options);
  probe_.SearchEnds();
  if (absl::IsCancelled(answer.status())) FUSIONLLM_RETURN_IF_ERROR(StillWanted(context));  // says why
  return answer;
}

grpc::Status SchedulerService::Plan(grpc::ServerContext* context, const v1::PlanRequest* request, v1::PlanResponse* response) {
  const auto begin = std::chrono::steady_clock::now();
  bool refused = false;
  const grpc::Status status = [&] {
    const Counted place(taken_);
    if (place.before() >= options_.max_concurrent) {
      return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED,
                          absl::StrCat("busy with ", options_.max_concurrent, " plans; try again in a moment"));
    }
    const absl::StatusOr<wire::PlanAnswer> answer = Answer(*context, *request);
    if (!answer.ok()) return StatusOf(answer.status());
    refused = std::holds_alternative<wire::RefusalDocument>(*answer);
    response->set_plan_document(wire::PrintPlan(*answer));
    return grpc::Status::OK;
  }();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  probe_.Ended(status, refused, seconds);
  base::Log(status.ok() || status.error_code() == grpc::StatusCode::CANCELLED ? base::LogLevel::kInfo : base::LogLevel::kWarning,
            absl::StrFormat("a plan was %s after %.3f s%s%s", refused ? "refused" : (status.ok() ? "made" : "not made"), seconds,
                            status.ok() ? "" : ": ", status.error_message()));
  return status;
}

}  // namespace fusionllm::services
