#include "services/broker/final_report.h"

#include <nlohmann/json.hpp>

#include "lib/base/exit_code.h"
#include "lib/base/json_text.h"
#include "lib/base/truncate_utf8.h"

namespace fusionllm::services {
namespace {

using nlohmann::json;

constexpr size_t kMaxSentence = 1024;  // who reads it keeps no more (operator/lifecycle/progress.h)

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

// What is read at the beginning was named by the user; what does not let itself be written is no fault of theirs.
int ExitCodeOfSetUp(const absl::Status& error, bool resume_journal) {
  // A store that knows the credentials and refuses them, a folder that may not be read: another start gets the same.
  const bool refused = absl::IsPermissionDenied(error) || absl::IsUnauthenticated(error);
  // With it the run had begun, but for what no run of this job may begin with, another model's checkpoint say (FailedPrecondition).
  if (resume_journal && !absl::IsFailedPrecondition(error) && !refused) return base::kExitFailed;
  if (absl::IsUnavailable(error)) return base::kExitFailed;
  return base::ExitCodeFor(base::AsBadInput(error));
}

std::string FinalReport(const std::string& progress, int exit_code, const RunOutcome& outcome) {
  json report = base::ParseJson(progress);
  if (!report.is_object()) report = json::object();
  for (const char* seen : {"links", "events", "waiting"}) report.erase(seen);
  report["exit_code"] = exit_code;
  if (!outcome.status.ok()) report["error"] = base::TruncateUtf8(std::string(outcome.status.message()), kMaxSentence);
  if (!outcome.refusal_reason.empty()) report["reason"] = outcome.refusal_reason;
  for (const char* spare : {"stages", "slowest_link", "error"}) {
    if (Text(report).size() < kMaxReportBytes) break;
    report.erase(spare);
  }
  return Text(report);
}

}  // namespace fusionllm::services
