#include "services/broker/plan_client.h"

#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/support/channel_arguments.h>

#include <algorithm>
#include <condition_variable>
#include <optional>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/mutex.h"
#include "lib/base/status_macros.h"
#include "lib/broker/codec_limit.h"
#include "lib/job/parse.h"
#include "lib/plan/plan.h"
#include "lib/security/grpc_messages/uncompressed_messages.h"
#include "lib/wire/plan_json.h"
#include "lib/wire/replan_json.h"
#include "proto/fusionllm/v1/scheduler.grpc.pb.h"

namespace fusionllm::services {
namespace {

using Clock = std::chrono::system_clock;  // gRPC's deadlines

// The job with micro-batches of the size that the run has had so far: others would give other bits, and batch norm other statistics.
job::FusionJob WithKnownSize(job::FusionJob job, const broker::RequestPlan& ask) {
  job::Training& training = job.spec.training;
  const bool fits = ask.micro_batch_size > 0 && training.global_batch_size % ask.micro_batch_size == 0;
  if (training.micro_batch_size == 0 && fits) training.micro_batch_size = ask.micro_batch_size;
  return job;
}

// The job as a question asks it. Of the devices that are left after a loss: going on in fewer stages serves the user better than the
// refusal of a number that cannot be had any more, and gives the same loss bits. After a back-off: with codecs up to the limit.
job::FusionJob AskedJob(job::FusionJob job, const broker::RequestPlan& ask, bool allow_join) {
  const std::vector<std::string>& devices = ask.devices;
  if (const auto limit = compression::ParseCodecSpec(ask.codec_limit); limit.ok()) {
    job.spec.compression = broker::WithCodecLimit(job.spec.compression, *limit);
  }
  const std::vector<std::string>& excluded = job.spec.strategy.exclude;
  const int64_t left = std::count_if(devices.begin(), devices.end(), [&](const std::string& device) {
    return std::find(excluded.begin(), excluded.end(), device) == excluded.end();
  });
  int64_t& replicas = job.spec.strategy.replicas;
  if (replicas > 1 && left < replicas * std::max<int64_t>(1, job.spec.strategy.stages)) replicas = 0;  // as many as pay
  job.spec.strategy.stages = std::min(job.spec.strategy.stages, left);
  if (allow_join) job.spec.executors.min = std::min(job.spec.executors.min, left);
  std::erase_if(job.spec.strategy.pins,
                [&](const job::Pin& pin) { return std::find(devices.begin(), devices.end(), pin.device) == devices.end(); });
  return job;
}

bool MayComeBack(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::UNAVAILABLE || status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED;
}

// False when `stop` was requested meanwhile.
bool Pause(std::chrono::milliseconds pause, const std::stop_token& stop) {
  base::Mutex mutex;  // guards nothing; the wait needs one
  std::condition_variable_any never;
  base::UniqueLock lock(mutex);
  never.wait_for(lock, stop, pause, [] { return false; });
  return !stop.stop_requested();
}

// The plan in force with the devices that run it now: spares that took stages over are not in its document.
absl::StatusOr<plan::Plan> DocumentOf(const broker::CurrentPlan& current_plan) {
  FUSIONLLM_ASSIGN_OR_RETURN(plan::PlanResult answer, wire::ParsePlan(current_plan.document));
  auto* plan = std::get_if<plan::Plan>(&answer);
  if (plan == nullptr || plan->replicas > 1 || plan->stages.size() != current_plan.devices.size()) {
    return absl::InternalError("the plan in force has no document to ask with");
  }
  for (size_t s = 0; s < current_plan.devices.size(); ++s) plan->stages[s].devices = {current_plan.devices[s]};
  for (plan::Link& link : plan->links) {
    link.src = current_plan.devices[link.src_stage];
    link.dst = current_plan.devices[link.dst_stage];
  }
  return std::move(*plan);
}

// The plan of an answer to Replan. Errors: FailedPrecondition, saying why, when it is to stay.
absl::StatusOr<std::string> PlanToMoveTo(const std::string& document) {
  FUSIONLLM_ASSIGN_OR_RETURN(const wire::ReplanResult answer, wire::ParseReplan(document));
  if (const auto* refusal = std::get_if<plan::PlanError>(&answer)) return wire::PrintPlan(*refusal);
  const auto& replan = std::get<wire::ReplanDocument>(answer);
  base::Log(base::LogLevel::kInfo, absl::StrCat("asked whether to leave the plan: ", replan.reason));
  if (replan.decision == wire::ReplanDecision::kStay) return absl::FailedPreconditionError(replan.reason);
  return wire::PrintPlan(replan.plan);
}

// What is expected of the running stages, under the strategy that made them.
absl::StatusOr<std::string> RunningPlanOf(const std::string& document, const std::string& strategy) {
  FUSIONLLM_ASSIGN_OR_RETURN(wire::ReplanResult answer, wire::ParseReplan(document));
  if (const auto* refusal = std::get_if<plan::PlanError>(&answer)) return wire::PrintPlan(*refusal);
  plan::Plan& plan = std::get<wire::ReplanDocument>(answer).plan;
  plan.strategy = strategy;
  return wire::PrintPlan(plan);
}

class Scheduler {
 public:
  Scheduler(const PlanClientOptions& options, const std::stop_token& stop)
      : options_(options), stop_(stop), stub_(v1::Scheduler::NewStub(options.channel)), deadline_(Clock::now() + options.timeout) {}

  // Calls until there is an answer, an error that stays, or no time left.
  template <typename Request, typename Response>
  absl::StatusOr<Response> Ask(grpc::Status (v1::Scheduler::StubInterface::*method)(grpc::ClientContext*, const Request&, Response*),
                               const Request& request) {
    while (true) {
      grpc::ClientContext context;
      context.set_deadline(deadline_);
      context.set_wait_for_ready(true);
      const std::stop_callback hang_up(stop_, [&] { context.TryCancel(); });
      Response response;
      const grpc::Status status = (stub_.get()->*method)(&context, request, &response);
      if (status.ok()) return response;
      const std::string message = absl::StrCat("scheduler: ", status.error_message(), WhyNotReached(status));
      const bool again = MayComeBack(status) && Clock::now() + options_.pause < deadline_ && Pause(options_.pause, stop_);
      if (!again) return absl::Status(static_cast<absl::StatusCode>(status.error_code()), message);
      base::Log(base::LogLevel::kInfo, absl::StrCat(message, "; asking again"));
    }
  }

 private:
  // A call that waits for a connection does not say why there is none: that the other end is not of this run, for one.
  std::string WhyNotReached(const grpc::Status& status) const {
    if (status.error_code() != grpc::StatusCode::DEADLINE_EXCEEDED) return "";
    if (options_.channel->GetState(false) != GRPC_CHANNEL_TRANSIENT_FAILURE) return "";
    grpc::ClientContext context;
    context.set_deadline(Clock::now() + std::chrono::seconds(1));
    v1::PlanResponse none;
    const grpc::Status why = stub_->Plan(&context, v1::PlanRequest(), &none);  // which fails before it is sent
    return why.error_code() == grpc::StatusCode::UNAVAILABLE ? absl::StrCat("; it could not be reached: ", why.error_message()) : "";
  }

  const PlanClientOptions& options_;
  const std::stop_token& stop_;
  const std::unique_ptr<v1::Scheduler::StubInterface> stub_;
  const Clock::time_point deadline_;
};

bool KeepsSize(const PlanClientOptions& options, const broker::RequestPlan& ask) {
  return ask.micro_batch_size > 0 && options.job.spec.training.micro_batch_size == 0;
}

v1::PlanRequest RequestOf(const PlanClientOptions& options, const std::string& profiles, const broker::RequestPlan& ask) {
  v1::PlanRequest request;
  if (ask.after_loss || KeepsSize(options, ask)) {
    const job::FusionJob job = WithKnownSize(options.job, ask);
    request.set_job_document(job::ToYaml(ask.after_loss ? AskedJob(job, ask, options.allow_join) : job));
  } else {
    request.set_job_document(options.job_document);
  }
  request.set_profiles_document(profiles);
  request.set_base_directory(options.base_directory);
  request.set_data_device(ask.data_device);
  return request;
}

// The refusal of an answer that is one.
std::optional<plan::PlanError> RefusalIn(const std::string& document) {
  const absl::StatusOr<plan::PlanResult> answer = wire::ParsePlan(document);
  const auto* const refusal = answer.ok() ? std::get_if<plan::PlanError>(&*answer) : nullptr;
  return refusal == nullptr ? std::nullopt : std::optional(*refusal);
}

// What is left after a loss may be too little, of memory, say, for as many replicas as the job wants: then for as many as pay; or, as on
// other devices than a checkpoint came from, for micro-batches of the size that was chosen at first: then for others, which is better than
// no more steps at all. Where there is no plan either, the refusal of the job as it was asked for is reported.
absl::StatusOr<std::string> PlanAgain(Scheduler& scheduler, const PlanClientOptions& options, const broker::RequestPlan& ask,
                                      v1::PlanRequest request) {
  FUSIONLLM_ASSIGN_OR_RETURN(const v1::PlanResponse plan, scheduler.Ask(&v1::Scheduler::StubInterface::Plan, request));
  const std::optional<plan::PlanError> refusal = RefusalIn(plan.plan_document());
  absl::StatusOr<job::FusionJob> job = job::ParseFusionJob(request.job_document(), "job.yaml");
  if (!refusal.has_value() || !job.ok()) return plan.plan_document();
  const auto ask_about = [&](const job::FusionJob& less) -> absl::StatusOr<std::string> {
    request.set_job_document(job::ToYaml(less));
    FUSIONLLM_ASSIGN_OR_RETURN(const v1::PlanResponse answer, scheduler.Ask(&v1::Scheduler::StubInterface::Plan, request));
    return answer.plan_document();
  };
  if (ask.after_loss && job->spec.strategy.replicas > 1) {
    job->spec.strategy.replicas = 0;
    FUSIONLLM_ASSIGN_OR_RETURN(std::string fewer, ask_about(*job));
    if (!RefusalIn(fewer).has_value()) return fewer;
  }
  if (KeepsSize(options, ask) && refusal->shortfall.what == "memory_bytes") {
    job->spec.training.micro_batch_size = 0;
    FUSIONLLM_ASSIGN_OR_RETURN(std::string other_size, ask_about(*job));
    if (!RefusalIn(other_size).has_value()) return other_size;
  }
  return plan.plan_document();
}

}  // namespace

std::shared_ptr<grpc::Channel> SchedulerChannel(const std::string& address, const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
  constexpr int kMaxAnswerBytes = 64 << 20;
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxAnswerBytes);
  // Any member has a certificate of this CA. Without TLS it is not looked at.
  arguments.SetSslTargetNameOverride("scheduler");
  security::RefuseCompressedMessages(arguments);
  return grpc::CreateCustomChannel(address, credentials, arguments);
}

PlanFunction SchedulerPlanFunction(PlanClientOptions options) {
  return [options = std::move(options)](const std::string& profiles, const broker::RequestPlan& ask,
                                        std::stop_token stop) -> absl::StatusOr<std::string> {
    Scheduler scheduler(options, stop);
    const v1::PlanRequest now = RequestOf(options, profiles, ask);
    // With replicas there is no search near a running plan: the caller judges one made from scratch.
    const bool from_scratch = !ask.current_plan.has_value() || (options.job.spec.strategy.replicas != 1 && !ask.figures_only);
    if (from_scratch && (ask.after_loss || KeepsSize(options, ask))) return PlanAgain(scheduler, options, ask, now);
    if (from_scratch) {
      FUSIONLLM_ASSIGN_OR_RETURN(const v1::PlanResponse plan, scheduler.Ask(&v1::Scheduler::StubInterface::Plan, now));
      return plan.plan_document();
    }
    v1::ReplanRequest request;
    *request.mutable_now() = now;
    FUSIONLLM_ASSIGN_OR_RETURN(const plan::Plan running, DocumentOf(*ask.current_plan));
    request.set_running_document(wire::PrintPlan(running));
    request.set_figures_only(ask.figures_only);
    request.set_steps_left(ask.current_plan->steps_left);
    request.set_running_step_seconds(ask.current_plan->step_s);
    request.set_bias(ask.current_plan->bias);
    request.set_fixed_seconds(ask.current_plan->move_s);
    FUSIONLLM_ASSIGN_OR_RETURN(const v1::ReplanResponse answer, scheduler.Ask(&v1::Scheduler::StubInterface::Replan, request));
    return ask.figures_only ? RunningPlanOf(answer.replan_document(), running.strategy) : PlanToMoveTo(answer.replan_document());
  };
}

}  // namespace fusionllm::services
