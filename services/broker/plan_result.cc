#include "services/broker/plan_result.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "lib/base/json_text.h"
#include "lib/wire/plan_json.h"

namespace fusionllm::services {
namespace {

using nlohmann::json;

// Of a field that may be missing or of any type.
std::string TextOf(const json& object, const char* name, const char* otherwise) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : otherwise;
}

}  // namespace

absl::StatusOr<broker::RunPlan> ReadRunPlan(const std::string& document) {
  absl::StatusOr<plan::PlanResult> answer = wire::ParsePlan(document);
  if (!answer.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("the scheduler's answer is no plan document: ", std::string(answer.status().message())));
  }
  auto* const plan = std::get_if<plan::Plan>(&*answer);
  if (plan == nullptr) return absl::InvalidArgumentError("the scheduler's answer is a refusal");
  return broker::RunPlan{.document = document, .devices = broker::DevicesByRank(*plan), .plan = std::move(*plan)};
}

broker::Event PlanEventOf(const broker::RequestPlan& ask, const absl::StatusOr<std::string>& answer) {
  broker::PlanRefused refused{.id = ask.id, .reason = broker::kSchedulerFailed};
  if (answer.ok()) {
    const json document = base::ParseJson(*answer);
    if (document.is_object() && document.contains("refused") && document["refused"].is_object()) {
      const json& refusal = document["refused"];
      refused = {.id = ask.id, .reason = TextOf(refusal, "reason", "Refused"), .message = TextOf(refusal, "message", "")};
    } else {
      absl::StatusOr<broker::RunPlan> plan = ReadRunPlan(*answer);
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
