#include "operator/lifecycle/progress.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/base/printable_text.h"
#include "lib/base/status_macros.h"
#include "lib/base/truncate_utf8.h"
#include "lib/job/fusion_job.h"
#include "lib/kube/api/json_fields.h"

namespace fusionllm::op::lifecycle {
namespace {

using kube::At;
using nlohmann::json;

constexpr size_t kMaxText = 1024;

int64_t Integer(const json& object, const char* key) { return kube::IntegerOf(At(object, key), 0); }

std::optional<double> Number(const json& object, const char* key) {
  const json& value = At(object, key);
  if (!value.is_number() || !std::isfinite(value.get<double>())) return std::nullopt;
  return value.get<double>();
}

// Events of a broker that say what its run waits for (services/broker/run_progress.cc).
constexpr absl::string_view kWaits[] = {"ProbeFailed", "Recovering", "WaitingForData", "WaitingForExecutors", "WaitingForSite"};

// As many as a status takes.
int Count(const json& list) { return static_cast<int>(std::min<size_t>(list.size(), job::kMaxExecutors)); }

std::string Text(const json& object, const char* key) { return base::TruncateUtf8(kube::TextAt(object, key), kMaxText); }

std::string Rate(double bytes_per_s) {
  if (bytes_per_s >= 1e9) return absl::StrFormat("%.1f GB/s", bytes_per_s / 1e9);
  if (bytes_per_s >= 1e6) return absl::StrFormat("%.1f MB/s", bytes_per_s / 1e6);
  return absl::StrFormat("%.1f kB/s", bytes_per_s / 1e3);
}

absl::StatusOr<json> PageOf(absl::string_view text) {
  if (text.size() > kMaxProgressBytes) return absl::InvalidArgumentError(absl::StrCat("progress of ", text.size(), " bytes"));
  json page = kube::ParseJson(text);
  if (!page.is_object()) return absl::InvalidArgumentError("progress is no JSON object");
  return page;
}

Progress ProgressIn(const json& page) {
  Progress progress;
  progress.phase = Text(page, "phase");
  progress.step = Integer(page, "step");
  progress.steps = Integer(page, "steps");
  progress.epoch = Integer(page, "epoch");
  progress.executors = Integer(page, "executors");
  progress.plan_executors = Integer(page, "plan_executors");
  progress.wanted_executors = Integer(page, "wanted_executors");
  progress.recoveries = Integer(page, "recoveries");
  progress.loss = Number(page, "loss");
  progress.tokens_per_second = Number(page, "tokens_per_second");
  progress.learning_rate = Number(page, "learning_rate");
  progress.step_seconds = Number(page, "step_seconds");
  progress.predicted_step_seconds = Number(page, "predicted_step_seconds");
  progress.eta_seconds = Number(page, "eta_seconds");
  progress.error = Text(page, "error");
  progress.reason = Text(page, "reason");
  if (At(page, "checkpoint_step").is_number_integer()) progress.checkpoint_step = Integer(page, "checkpoint_step");
  if (At(page, "exit_code").is_number_integer()) progress.exit_code = static_cast<int>(Integer(page, "exit_code"));
  if (const json& stages = At(page, "stages"); stages.is_array()) {
    progress.stages = Count(stages);
    // A list for each stage where there are replicas, else a name.
    if (!stages.empty() && stages[0].is_array() && !stages[0].empty()) progress.replicas = Count(stages[0]);
  }
  if (const json& waiting = At(page, "waiting"); IsWait(Text(waiting, "reason"))) {
    progress.wait_reason = Text(waiting, "reason");
    progress.wait = base::TruncateUtf8(base::PrintableText(Text(waiting, "message")), kMaxText);
  }
  if (const json& link = At(page, "slowest_link"); link.is_object()) {
    progress.slowest_link = absl::StrCat(Text(link, "src"), "->", Text(link, "dst"), " ", Text(link, "codec"));
    if (const auto rate = Number(link, "bandwidth_bytes_per_second")) absl::StrAppend(&progress.slowest_link, " ", Rate(*rate));
  }
  return progress;
}

}  // namespace

bool IsWait(absl::string_view reason) { return std::find(std::begin(kWaits), std::end(kWaits), reason) != std::end(kWaits); }

absl::StatusOr<Progress> ParseProgress(absl::string_view text) {
  FUSIONLLM_ASSIGN_OR_RETURN(const json page, PageOf(text));
  return ProgressIn(page);
}

absl::StatusOr<ProgressPage> ParseProgressPage(absl::string_view text, int64_t& last_number, absl::Time now) {
  FUSIONLLM_ASSIGN_OR_RETURN(const json page, PageOf(text));
  return ProgressPage{.progress = ProgressIn(page), .events = TakeRunEvents(page, last_number, now)};
}

}  // namespace fusionllm::op::lifecycle
