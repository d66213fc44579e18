#include "services/broker/plan_result.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "lib/base/json_text.h"
#include "lib/base/status_macros.h"
#include "lib/wire/plan_json.h"

namespace fusionllm::services {
namespace {

using nlohmann::json;

int Replicas(const json& document) {
  const auto found = document.find("replicas");
  if (found == document.end() || !found->is_number_integer()) return 1;
  return static_cast<int>(std::clamp<int64_t>(found->get<int64_t>(), 1, wire::kMaxPlanStages));
}

double BusySeconds(const json& figures) {
  return figures.value("compute_seconds", 0.0) + figures.value("codec_seconds", 0.0) + figures.value("update_seconds", 0.0);
}

// The ranks of one replica.
absl::Status AddRanks(const json& stages, int replica, broker::PlanSummary& plan) {
  for (const json& stage : stages) {
    const auto devices = stage.value("devices", std::vector<std::string>());
    if (devices.size() != static_cast<size_t>(plan.replicas)) {
      return absl::InvalidArgumentError(absl::StrFormat("the scheduler answered with a stage of %d devices in a plan of %d replica%s",
                                                        devices.size(), plan.replicas, plan.replicas == 1 ? "" : "s"));
    }
    const json& figures = plan.replicas == 1 ? stage : stage.at("by_replica").at(static_cast<size_t>(replica));
    plan.devices.push_back(devices[static_cast<size_t>(replica)]);
    plan.memory_bytes.push_back(figures.value("memory_bytes", int64_t{0}));
    plan.stage_busy_s.push_back(BusySeconds(figures));
  }
  return absl::OkStatus();
}

absl::Status ReadShares(const json& document, broker::PlanSummary& plan) {
  plan.micro_batches_by_replica = document.value("micro_batches_by_replica", std::vector<int64_t>());
  const std::vector<int64_t>& shares = plan.micro_batches_by_replica;
  const bool fits = shares.empty() || shares.size() == static_cast<size_t>(plan.replicas);
  if (fits && std::all_of(shares.begin(), shares.end(), [](int64_t share) { return share > 0 && share <= wire::kMaxPlanMicroBatches; })) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrFormat("the scheduler answered with shares of micro-batches (%s) that are none of %d replica%s", absl::StrJoin(shares, ", "),
                      plan.replicas, plan.replicas == 1 ? "" : "s"));
}

absl::StatusOr<broker::PlanSummary> Summarize(const std::string& text, const json& document) {
  broker::PlanSummary plan{.document = text, .replicas = Replicas(document)};
  const json stages = document.value("stages", json::array());
  if (stages.empty()) return absl::InvalidArgumentError("the scheduler answered with a plan without stages");
  for (int replica = 0; replica < plan.replicas; ++replica) FUSIONLLM_RETURN_IF_ERROR(AddRanks(stages, replica, plan));
  const auto rank_of = [&](const json& link, const char* end) {
    const auto found = std::find(plan.devices.begin(), plan.devices.end(), link.value(end, ""));
    return found == plan.devices.end() ? -1 : static_cast<int>(found - plan.devices.begin());
  };
  for (const json& link : document.value("links", json::array())) {
    plan.links.push_back({.src_rank = rank_of(link, "src"),
                          .dst_rank = rank_of(link, "dst"),
                          .codec = link.value("codec", ""),
                          .bytes = link.value("bytes", 0.0),
                          .loss_cost = link.value("loss_cost", 0.0)});
    if (plan.links.back().src_rank < 0 || plan.links.back().dst_rank < 0) {
      return absl::InvalidArgumentError("the scheduler answered with a link between devices that have no stage");
    }
  }
  for (const json& tied : document.value("tied", json::array())) plan.tied_codecs.push_back(tied.value("codec", "fp32"));
  plan.micro_batch_size = document.value("micro_batch_size", int64_t{0});
  plan.micro_batches = document.value("micro_batches", int64_t{0});
  plan.predicted_step_s = document.value("predicted_step_seconds", 0.0);
  FUSIONLLM_RETURN_IF_ERROR(ReadShares(document, plan));
  return plan;
}

// Of a field that may be missing or of any type.
std::string TextOf(const json& object, const char* name, const char* otherwise) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : otherwise;
}

}  // namespace

absl::StatusOr<broker::PlanSummary> SummaryOf(const std::string& document) {
  const json parsed = base::ParseJson(document);
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

broker::Event PlanEventOf(const broker::RequestPlan& ask, const absl::StatusOr<std::string>& answer) {
  broker::PlanRefused refused{.id = ask.id, .reason = broker::kSchedulerFailed};
  if (answer.ok()) {
    const json document = base::ParseJson(*answer);
    if (document.is_object() && document.contains("refused") && document["refused"].is_object()) {
      const json& refusal = document["refused"];
      refused = {.id = ask.id, .reason = TextOf(refusal, "reason", "Refused"), .message = TextOf(refusal, "message", "")};
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
