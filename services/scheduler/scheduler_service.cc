#include "services/scheduler/scheduler_service.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/job/parse.h"
#include "lib/plan/plan.h"
#include "lib/planning/plan_workload.h"
#include "lib/planning/replan_workload.h"
#include "lib/planning/simulate_workload.h"
#include "lib/wire/plan_json.h"
#include "lib/wire/profile_json.h"
#include "lib/wire/replan_json.h"
#include "services/scheduler/throttled_cancellation_check.h"

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

absl::StatusOr<plan::Plan> ReadPlan(const std::string& document, absl::string_view field) {
  FUSIONLLM_ASSIGN_OR_RETURN(plan::PlanResult plan, wire::ParsePlan(document));
  if (!std::holds_alternative<plan::Plan>(plan)) return absl::InvalidArgumentError(absl::StrCat(field, ": is a refusal, not a plan"));
  return std::get<plan::Plan>(std::move(plan));
}

}  // namespace

// A caller that has gone or whose time is up needs no answer. Asked before each costly part, and all through a search.
absl::Status SchedulerService::CheckNotCancelled(const grpc::ServerContext& context) const {
  if (stopping_) return absl::UnavailableError("the scheduler is stopping");
  // The end of a call's time also cancels it: asked first, so that it is distinguished.
  if (context.deadline() < std::chrono::system_clock::now()) return absl::DeadlineExceededError("the caller's deadline has passed");
  if (context.IsCancelled()) return absl::CancelledError("the caller has cancelled");
  return absl::OkStatus();
}

absl::StatusOr<SchedulerService::PlanInput> SchedulerService::Read(const grpc::ServerContext& context,
                                                                   const v1::PlanRequest& request) const {
  FUSIONLLM_RETURN_IF_ERROR(CheckNotCancelled(context));
  FUSIONLLM_ASSIGN_OR_RETURN(const job::FusionJob job, job::ParseFusionJob(request.job_document(), "job_document"));
  FUSIONLLM_ASSIGN_OR_RETURN(wire::ProfilesDocument profiles, wire::ParseProfiles(request.profiles_document()));
  PlanInput subject;
  FUSIONLLM_ASSIGN_OR_RETURN(subject.workload, workload::Resolve(job, request.base_directory()));
  subject.profiles = planning::ProfilesFromDocument(std::move(profiles));
  subject.options = {.strategy = request.strategy(),
                     .seed = request.seed(),
                     .exclude = {request.exclude().begin(), request.exclude().end()},
                     .data_device = request.data_device(),
                     .stop = ThrottledCancellationCheck([this, &context] { return !CheckNotCancelled(context).ok(); })};
  FUSIONLLM_RETURN_IF_ERROR(CheckNotCancelled(context));
  return subject;
}

template <typename Answer>
absl::StatusOr<Answer> SchedulerService::Search(const grpc::ServerContext& context, const std::function<absl::StatusOr<Answer>()>& search) {
  const Counted counted(searching_);
  plan_metrics_.SearchStarted();
  absl::StatusOr<Answer> answer = search();
  plan_metrics_.SearchFinished();
  if (absl::IsCancelled(answer.status())) FUSIONLLM_RETURN_IF_ERROR(CheckNotCancelled(context));  // says why
  return answer;
}

grpc::Status SchedulerService::Serve(absl::string_view what, const PlanCall& question) {
  const auto begin = std::chrono::steady_clock::now();
  bool refused = false;
  const grpc::Status status = [&] {
    const Counted place(taken_);
    if (place.before() >= options_.max_concurrent) {
      return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED,
                          absl::StrCat("busy with ", options_.max_concurrent, " plans; try again in a moment"));
    }
    const absl::StatusOr<bool> answered = question();
    if (!answered.ok()) return StatusOf(answered.status());
    refused = *answered;
    return grpc::Status::OK;
  }();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  plan_metrics_.CountCall(status, refused, seconds);
  base::Log(status.ok() || status.error_code() == grpc::StatusCode::CANCELLED ? base::LogLevel::kInfo : base::LogLevel::kWarning,
            absl::StrFormat("%s was %s after %.3f s%s%s", what, refused ? "refused" : (status.ok() ? "made" : "not made"), seconds,
                            status.ok() ? "" : ": ", status.error_message()));
  return status;
}

grpc::Status SchedulerService::Plan(grpc::ServerContext* context, const v1::PlanRequest* request, v1::PlanResponse* response) {
  return Serve("a plan", [&]() -> absl::StatusOr<bool> {
    FUSIONLLM_ASSIGN_OR_RETURN(PlanInput subject, Read(*context, *request));
    subject.options.alternatives = true;
    FUSIONLLM_ASSIGN_OR_RETURN(const plan::PlanResult answer, Search<plan::PlanResult>(*context, [&] {
                                 return planning::PlanWorkload(*subject.workload, subject.profiles, subject.options);
                               }));
    response->set_plan_document(wire::PrintPlan(answer));
    return std::holds_alternative<plan::PlanError>(answer);
  });
}

grpc::Status SchedulerService::Replan(grpc::ServerContext* context, const v1::ReplanRequest* request, v1::ReplanResponse* response) {
  return Serve("a new plan", [&]() -> absl::StatusOr<bool> {
    FUSIONLLM_ASSIGN_OR_RETURN(const PlanInput subject, Read(*context, request->now()));
    FUSIONLLM_ASSIGN_OR_RETURN(const plan::Plan running, ReadPlan(request->running_document(), "running_document"));
    scheduler::replan::ReplanOptions replan_options{
        .steps_left = request->steps_left(), .running_step_s = request->running_step_seconds(), .fixed_s = request->fixed_seconds()};
    replan_options.figures_only = request->figures_only();
    if (request->bias() != 0) replan_options.bias = request->bias();
    if (request->has_min_improvement()) replan_options.min_improvement = request->min_improvement();
    if (request->restore_bytes_per_second() != 0) replan_options.restore.bytes_per_s = request->restore_bytes_per_second();
    FUSIONLLM_ASSIGN_OR_RETURN(const wire::ReplanResult answer, Search<wire::ReplanResult>(*context, [&] {
                                 return planning::ReplanWorkload(*subject.workload, subject.profiles, running, subject.options,
                                                                 replan_options);
                               }));
    response->set_replan_document(wire::PrintReplan(answer));
    return std::holds_alternative<plan::PlanError>(answer);
  });
}

grpc::Status SchedulerService::Explain(grpc::ServerContext* context, const v1::ExplainRequest* request, v1::ExplainResponse* response) {
  return Serve("an explanation", [&]() -> absl::StatusOr<bool> {
    FUSIONLLM_ASSIGN_OR_RETURN(const PlanInput subject, Read(*context, request->plan()));
    FUSIONLLM_ASSIGN_OR_RETURN(const plan::Plan plan, ReadPlan(request->plan_document(), "plan_document"));
    FUSIONLLM_ASSIGN_OR_RETURN(const std::vector<std::string> sentences, Search<std::vector<std::string>>(*context, [&] {
                                 return planning::ExplainPlan(*subject.workload, subject.profiles, plan, subject.options);
                               }));
    for (const std::string& sentence : sentences) response->add_sentences(sentence);
    return false;
  });
}

grpc::Status SchedulerService::Simulate(grpc::ServerContext* context, const v1::SimulateRequest* request, v1::SimulateResponse* response) {
  return Serve("a simulation", [&]() -> absl::StatusOr<bool> {
    FUSIONLLM_ASSIGN_OR_RETURN(const PlanInput subject, Read(*context, request->plan()));
    planning::Hardware hardware;
    FUSIONLLM_ASSIGN_OR_RETURN(hardware.measured, wire::ParseProfiles(request->plan().profiles_document()));
    if (!request->topology_document().empty()) {
      FUSIONLLM_ASSIGN_OR_RETURN(hardware.topology, job::ParseTopology(request->topology_document(), "topology_document"));
      if (!hardware.measured.devices.empty()) hardware.machine_memory_bytes = hardware.measured.devices.front().memory_bytes;
    }
    planning::SimulateOptions options{.plan = subject.options,
                                      .jitter = request->jitter(),
                                      .stragglers = {request->straggler().begin(), request->straggler().end()},
                                      .noise_seed = request->noise_seed(),
                                      .steps = std::max(1, request->steps()),
                                      .what_if = {request->what_if().begin(), request->what_if().end()}};
    if (request->steps() < 0) return absl::InvalidArgumentError("steps: must not be negative");
    if (!request->schedule().empty()) {
      FUSIONLLM_ASSIGN_OR_RETURN(options.schedule, planning::ParseSchedule(request->schedule()));
    }
    const auto source = [&](const std::vector<std::string>& overrides) -> absl::StatusOr<std::unique_ptr<workload::Workload>> {
      FUSIONLLM_ASSIGN_OR_RETURN(const job::FusionJob job, job::ParseFusionJob(request->plan().job_document(), "job_document", overrides));
      return workload::Resolve(job, request->plan().base_directory());
    };
    FUSIONLLM_ASSIGN_OR_RETURN(const planning::SimulationOutcome outcome, Search<planning::SimulationOutcome>(*context, [&] {
                                 return planning::SimulateWorkload(source, hardware, options);
                               }));
    response->set_simulation_document(wire::PrintSimulation(outcome.answer));
    return std::holds_alternative<plan::PlanError>(outcome.answer);
  });
}

}  // namespace fusionllm::services
