#include "lib/wire/simulation_json.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "lib/base/json_text.h"
#include "lib/wire/json_reader.h"

namespace fusionllm::wire {
namespace {

using nlohmann::json;

json ToJson(const SimulatedStage& stage) {
  return {{"index", stage.index},
          {"replica", stage.replica},
          {"device", stage.device},
          {"busy_ratio", stage.busy_ratio},
          {"forward_seconds", stage.forward_seconds},
          {"backward_seconds", stage.backward_seconds},
          {"weights_seconds", stage.weights_seconds},
          {"codec_seconds", stage.codec_seconds},
          {"update_seconds", stage.update_seconds},
          {"idle_seconds", stage.idle_seconds},
          {"end_seconds", stage.end_seconds},
          {"peak_in_flight", stage.peak_in_flight}};
}

json ToJson(const SimulatedLink& link) {
  return {{"src", link.src},
          {"dst", link.dst},
          {"src_stage", link.src_stage},
          {"dst_stage", link.dst_stage},
          {"replica", link.replica},
          {"direction", link.sync       ? "all-reduce"
                        : link.tied     ? "tied"
                        : link.norm     ? "norm"
                        : link.backward ? "backward"
                                        : "forward"},
          {"messages", link.messages},
          {"bytes", link.bytes},
          {"busy_ratio", link.busy_ratio},
          {"busy_seconds", link.busy_seconds},
          {"queued_seconds", link.queued_seconds},
          {"latency_seconds", link.latency_seconds}};
}

json ToJson(const SimulatedBottleneck& bottleneck) {
  json out = {{"kind", bottleneck.kind}, {"name", bottleneck.name}, {"busy_ratio", bottleneck.busy_ratio}, {"gain", bottleneck.gain}};
  if (!bottleneck.detail.empty()) out["detail"] = bottleneck.detail;
  if (!bottleneck.remedy.empty()) out["remedy"] = bottleneck.remedy;
  return out;
}

json ToJson(const SimulatedStep& step) {
  json out = {{"step_seconds", step.step_seconds},
              {"schedule", step.schedule},
              {"virtual_stages", step.virtual_stages},
              {"runnable", step.runnable},
              {"micro_batches", step.micro_batches},
              {"replicas", step.replicas},
              {"sync_seconds", step.sync_seconds},
              {"loss_cost", step.loss_cost},
              {"stages", json::array()},
              {"links", json::array()},
              {"resources", json::array()},
              {"limits", json::array()},
              {"bottleneck", step.bottleneck}};
  for (const SimulatedStage& stage : step.stages) out["stages"].push_back(ToJson(stage));
  for (const SimulatedLink& link : step.links) out["links"].push_back(ToJson(link));
  for (const SimulatedBottleneck& bottleneck : step.bottlenecks) out["limits"].push_back(ToJson(bottleneck));
  for (const SimulatedResource& resource : step.resources) {
    out["resources"].push_back({{"name", resource.name}, {"bytes", resource.bytes}, {"busy_ratio", resource.busy_ratio}});
  }
  if (const auto& spread = step.spread) {
    out["spread"] = {{"steps", spread->steps},
                     {"mean_seconds", spread->mean_seconds},
                     {"p50_seconds", spread->p50_seconds},
                     {"p95_seconds", spread->p95_seconds},
                     {"min_seconds", spread->min_seconds},
                     {"max_seconds", spread->max_seconds}};
  }
  return out;
}

json ToJson(const plan::PlanResult& answer) { return base::ParseJson(PrintPlan(answer)); }

json ToJson(const WhatIfDocument& what_if) {
  json out = {{"change", what_if.change}, {"before", {{"step_seconds", what_if.before_seconds}}}};
  out["same_plan"] = what_if.same_plan ? ToJson(*what_if.same_plan) : json();
  if (!what_if.same_plan) out["same_plan_reason"] = what_if.same_plan_reason;
  if (const auto* refusal = std::get_if<plan::PlanError>(&what_if.replanned)) {
    out["replanned"] = ToJson(plan::PlanResult(*refusal));
  } else {
    const auto& planned = std::get<PlannedStep>(what_if.replanned);
    out["replanned"] = ToJson(planned.step);
    out["replanned"]["plan"] = ToJson(plan::PlanResult(planned.plan));
  }
  return out;
}

const char* NameOf(scheduler::TimelineSpan::Kind kind) {
  using Kind = scheduler::TimelineSpan::Kind;
  switch (kind) {
    case Kind::kForward:
      return "forward";
    case Kind::kBackward:
      return "backward";
    case Kind::kWeights:
      return "weights";
    case Kind::kUpdate:
      return "update";
    case Kind::kForwardMessage:
      return "activations";
    case Kind::kTiedMessage:
      return "tied gradients";
    case Kind::kNorm:
      return "norm";
    default:
      return "gradients";
  }
}

}  // namespace

std::string PrintSimulation(const SimulationResult& answer) {
  if (const auto* refusal = std::get_if<plan::PlanError>(&answer)) return PrintPlan(*refusal);
  const auto& simulation = std::get<SimulationDocument>(answer);
  json out = ToJson(simulation.step);
  out["plan"] = ToJson(plan::PlanResult(simulation.plan));
  out["predicted_step_seconds"] = simulation.plan.predicted_step_seconds;
  out["what_if"] = json::array();
  for (const WhatIfDocument& what_if : simulation.what_if) out["what_if"].push_back(ToJson(what_if));
  return PrintJson(out);
}

std::string PrintTrace(const scheduler::Timeline& timeline) {
  constexpr int kStages = 1, kLinks = 2;  // processes
  constexpr double kMicroseconds = 1e6;
  json events = json::array();
  const auto name = [&](const char* what, int process, int thread, const std::string& text) {
    events.push_back({{"name", what}, {"ph", "M"}, {"pid", process}, {"tid", thread}, {"args", {{"name", text}}}});
  };
  name("process_name", kStages, 0, "stages");
  name("process_name", kLinks, 0, "links");
  for (size_t r = 0; r < timeline.rows.size(); ++r) {
    name("thread_name", timeline.rows[r].is_link ? kLinks : kStages, static_cast<int>(r), timeline.rows[r].name);
  }
  for (const scheduler::Timeline::Box& box : timeline.boxes) {
    const scheduler::TimelineSpan& span = box.span;
    const bool link = timeline.rows[box.row].is_link;
    using Kind = scheduler::TimelineSpan::Kind;
    const bool update = span.kind == Kind::kUpdate || span.kind == Kind::kTiedMessage || span.kind == Kind::kNorm;  // once a step
    json event = {{"name", update ? NameOf(span.kind) : absl::StrCat(NameOf(span.kind), " ", span.micro_batch)},
                  {"cat", NameOf(span.kind)},
                  {"ph", "X"},
                  {"ts", span.begin_s * kMicroseconds},
                  {"dur", (span.end_s - span.begin_s) * kMicroseconds},
                  {"pid", link ? kLinks : kStages},
                  {"tid", box.row}};
    if (!update) event["args"]["micro_batch"] = span.micro_batch;
    if (link) {
      event["args"]["queued_us"] = (span.begin_s - span.sent_s) * kMicroseconds;
      event["args"]["arrives_us"] = span.arrives_s * kMicroseconds;
    }
    events.push_back(std::move(event));
  }
  return PrintJson({{"displayTimeUnit", "ms"},
                    {"otherData", {{"step_seconds", timeline.step_s}, {"truncated", timeline.truncated}}},
                    {"traceEvents", std::move(events)}});
}

}  // namespace fusionllm::wire
