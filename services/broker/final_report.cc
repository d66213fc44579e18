#include "services/broker/final_report.h"

#include <nlohmann/json.hpp>

#include "lib/base/cut_text.h"
#include "lib/base/exit_code.h"
#include "lib/base/json_text.h"

namespace fusionllm::services {
namespace {

using nlohmann::json;

constexpr size_t kMaxSentence = 1024;  // who reads it keeps no more (operator/progress)

std::string Text(const json& report) { return report.dump(-1, ' ', /*ensure_ascii=*/false, json::error_handler_t::replace); }

}  // namespace

int ExitCodeOf(const RunOutcome& outcome) {
  if (!outcome.refusal_reason.empty()) {
    return outcome.refusal_reason == broker::kSchedulerFailed ? base::kExitFailed : base::kExitInfeasible;
  }
  // What a stage found wrong with the job's files is the user's input (broker::RunState gives other codes to what is lost while it runs);
  // FailedPrecondition is said of peers.
  const bool input =
      absl::IsInvalidArgument(outcome.status) || absl::IsNotFound(outcome.status) || absl::IsPermissionDenied(outcome.status);
  if (input) return base::kExitBadInput;
  if (!outcome.status.ok()) return base::kExitFailed;
  return outcome.interrupted ? base::kExitInterrupted : base::kExitDone;
}

std::string FinalReport(const std::string& progress, int exit_code, const RunOutcome& outcome) {
  json report = base::ParseJson(progress);
  if (!report.is_object()) report = json::object();
  for (const char* seen : {"links", "events", "waiting"}) report.erase(seen);
  report["exit_code"] = exit_code;
  if (!outcome.status.ok()) report["error"] = base::CutText(std::string(outcome.status.message()), kMaxSentence);
  if (!outcome.refusal_reason.empty()) report["reason"] = outcome.refusal_reason;
  for (const char* spare : {"stages", "slowest_link", "error"}) {
    if (Text(report).size() < kMaxReportBytes) break;
    report.erase(spare);
  }
  return Text(report);
}

}  // namespace fusionllm::services
