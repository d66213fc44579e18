#include "services/broker/plan_client.h"

#include <grpcpp/client_context.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/broker/codec_limit.h"
#include "lib/job/parse.h"
#include "proto/fusionllm/v1/scheduler.grpc.pb.h"

namespace fusionllm::services {
namespace {

using Clock = std::chrono::system_clock;  // gRPC's deadlines

// The job as a question asks it. Of the devices that are left after a loss: going on in fewer stages serves the user better than the
// refusal of a number that cannot be had any more, and gives the same loss bits. After a back-off: with codecs up to the limit.
job::FusionJob AskedJob(job::FusionJob job, const broker::AskPlan& ask, bool open) {
  const std::vector<std::string>& devices = ask.devices;
  if (const auto limit = compression::ParseCodecSpec(ask.codec_limit); limit.ok()) {
    job.spec.compression = broker::LimitedTo(job.spec.compression, *limit);
  }
  const auto left = static_cast<int64_t>(devices.size());
  job.spec.strategy.stages = std::min(job.spec.strategy.stages, left);
  if (open) job.spec.executors.min = std::min(job.spec.executors.min, left);
  std::erase_if(job.spec.strategy.pins,
                [&](const job::Pin& pin) { return std::find(devices.begin(), devices.end(), pin.device) == devices.end(); });
  return job;
}

bool MayComeBack(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::UNAVAILABLE || status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED;
}

// False when `stop` was requested meanwhile.
bool Pause(std::chrono::milliseconds pause, const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any never;
  std::unique_lock lock(mutex);
  never.wait_for(lock, stop, pause, [] { return false; });
  return !stop.stop_requested();
}

}  // namespace

PlanFunction AskScheduler(PlanClientOptions options) {
  return [options = std::move(options)](const std::string& profiles, const broker::AskPlan& ask,
                                        std::stop_token stop) -> absl::StatusOr<std::string> {
    const auto stub = v1::Scheduler::NewStub(options.channel);
    v1::PlanRequest request;
    request.set_job_document(ask.again ? job::ToYaml(AskedJob(options.job, ask, options.open)) : options.job_document);
    request.set_profiles_document(profiles);
    request.set_base_directory(options.base_directory);
    request.set_data_device(options.data_device);
    const auto deadline = Clock::now() + options.patience;
    while (true) {
      grpc::ClientContext context;
      context.set_deadline(deadline);
      context.set_wait_for_ready(true);
      const std::stop_callback hang_up(stop, [&] { context.TryCancel(); });
      v1::PlanResponse response;
      const grpc::Status status = stub->Plan(&context, request, &response);
      if (status.ok()) return response.plan_document();
      const std::string message = absl::StrCat("scheduler: ", status.error_message());
      const bool again = MayComeBack(status) && Clock::now() + options.pause < deadline && Pause(options.pause, stop);
      if (!again) return absl::Status(static_cast<absl::StatusCode>(status.error_code()), message);
      base::Log(base::LogLevel::kInfo, absl::StrCat(message, "; asking again"));
    }
  };
}

}  // namespace fusionllm::services
