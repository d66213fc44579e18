#include "services/broker/plan_answer.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/scheduler/refusal_reasons.h"

namespace fusionllm::services {
namespace {

using nlohmann::json;

absl::StatusOr<broker::PlanSummary> Summarize(const std::string& text, const json& document) {
  broker::PlanSummary plan{.document = text};
  for (const json& stage : document.value("stages", json::array())) {
    const auto devices = stage.value("devices", std::vector<std::string>());
    if (devices.size() != 1) return absl::InvalidArgumentError("the scheduler answered with a stage that has not exactly one device");
    plan.devices.push_back(devices[0]);
    plan.memory_bytes.push_back(stage.value("memory_bytes", int64_t{0}));
    plan.stage_busy_s.push_back(stage.value("compute_seconds", 0.0) + stage.value("codec_seconds", 0.0) +
                                stage.value("update_seconds", 0.0));
  }
  if (plan.devices.empty()) return absl::InvalidArgumentError("the scheduler answered with a plan without stages");
  for (const json& link : document.value("links", json::array())) {
    plan.links.push_back({.src_stage = link.value("src_stage", -1),
                          .dst_stage = link.value("dst_stage", -1),
                          .codec = link.value("codec", ""),
                          .bytes = link.value("bytes", 0.0),
                          .loss_cost = link.value("loss_cost", 0.0)});
  }
  plan.predicted_step_s = document.value("predicted_step_seconds", 0.0);
  return plan;
}

// Of a field that may be missing or of any type.
std::string TextOf(const json& object, const char* name, const char* otherwise) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : otherwise;
}

int64_t Replicas(const json& document) {
  const auto found = document.is_object() ? document.find("replicas") : document.end();
  return found != document.end() && found->is_number_integer() ? found->get<int64_t>() : 1;
}

}  // namespace

absl::StatusOr<broker::PlanSummary> SummaryOf(const std::string& document) {
  const json parsed = json::parse(document, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object()) return absl::InvalidArgumentError("the scheduler's answer is no plan document");
  try {
    return Summarize(document, parsed);
  } catch (const json::exception& error) {  // a field of another type
    return absl::InvalidArgumentError(absl::StrCat("the scheduler's answer is no plan document: ", error.what()));
  }
}

broker::PlanSummary OnDevices(broker::PlanSummary plan, std::vector<std::string> devices) {
  for (size_t i = 0; i < devices.size() && i < plan.devices.size() && i < plan.stage_busy_s.size(); ++i) {
    if (devices[i] != plan.devices[i]) plan.stage_busy_s[i] = 0;
  }
  plan.devices = std::move(devices);
  return plan;
}

broker::Event PlanEventOf(const broker::AskPlan& ask, const absl::StatusOr<std::string>& answer) {
  broker::PlanRefused refused{.id = ask.id, .reason = broker::kSchedulerFailed};
  if (answer.ok()) {
    const json document = json::parse(*answer, nullptr, /*allow_exceptions=*/false);
    if (document.is_object() && document.contains("refused") && document["refused"].is_object()) {
      const json& refusal = document["refused"];
      refused = {.id = ask.id, .reason = TextOf(refusal, "reason", "Refused"), .message = TextOf(refusal, "message", "")};
    } else if (Replicas(document) > 1) {
      refused = {.id = ask.id,
                 .reason = scheduler::refusals::kNotAvailable,
                 .message = absl::StrCat("the plan has ", Replicas(document),
                                         " pipelines side by side, a run has one: leave spec.strategy.replicas at 1")};
    } else {
      absl::StatusOr<broker::PlanSummary> plan = SummaryOf(*answer);
      if (ask.alternative > 0) return broker::AlternativePlanned{.alternative = ask.alternative, .plan = std::move(plan)};
      if (plan.ok()) return broker::Planned{.id = ask.id, .plan = *std::move(plan)};
      refused.message = std::string(plan.status().message());
    }
  } else {
    refused.message = std::string(answer.status().message());
  }
  if (ask.alternative > 0) {
    return broker::AlternativePlanned{.alternative = ask.alternative,
                                      .plan = absl::FailedPreconditionError(refused.message),
                                      .refusal_reason = refused.reason == broker::kSchedulerFailed ? "" : refused.reason};
  }
  return refused;
}

}  // namespace fusionllm::services
