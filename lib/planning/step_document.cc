#include "lib/planning/step_document.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "lib/job/model_config.h"
#include "lib/models/family.h"
#include "lib/scheduler/step_limits.h"
#include "lib/scheduler/text_format.h"

namespace fusionllm::planning {
namespace {

using scheduler::Limit;

constexpr size_t kMaxLimits = 8;
constexpr double kMinGainOfARunnerUp = 0.005;
// Shares of a step. What is busy for less of it waits for others; what is within the margin of the busiest is as near its limit.
constexpr double kMinBusy = 0.5;
constexpr double kBusyMargin = 0.15;
constexpr double kMinTiedPart = 0.005;
constexpr double kMuchTied = 0.2;

const char* KindName(Limit::Kind kind) {
  switch (kind) {
    case Limit::Kind::kStage:
      return "stage";
    case Limit::Kind::kLink:
      return "link";
    case Limit::Kind::kShared:
      return "resource";
    case Limit::Kind::kTied:
      return "tied";
    case Limit::Kind::kNorm:
      return "norm";
    case Limit::Kind::kUpdate:
      return "update";
    default:
      return "latency";
  }
}

// "25.7 of 29.7 s"
std::string OfTheStep(double seconds, double step_s) {
  return step_s < 1 ? absl::StrFormat("%.3g of %.3g ms", 1e3 * seconds, 1e3 * step_s) : absl::StrFormat("%.3g of %.3g s", seconds, step_s);
}

bool IsOfTheEnd(const Limit& limit) {
  return limit.kind == Limit::Kind::kTied || limit.kind == Limit::Kind::kNorm || limit.kind == Limit::Kind::kUpdate;
}

std::string Percent(double ratio) { return absl::StrFormat("%.0f%%", 100 * ratio); }

// "busy 62% of the step", "busy 62% of the step one way and 45% the other, tied gradients 43% of the step"
std::string BusyText(const Limit& limit) {
  std::string text = absl::StrCat("busy ", Percent(limit.busy_ratio), " of the step");
  if (limit.reverse >= 0) absl::StrAppend(&text, " one way and ", Percent(limit.reverse_busy_ratio), " the other");
  if (limit.tied_ratio > kMinTiedPart) absl::StrAppend(&text, ", tied gradients ", Percent(limit.tied_ratio), " of the step");
  return text;
}

void Describe(const Limit& limit, double step_s, const StepText& text, wire::SimulatedLimit& out) {
  if (limit.kind == Limit::Kind::kLink || limit.kind == Limit::Kind::kShared) {
    out.detail = BusyText(limit);
    out.remedy = limit.tied_ratio > kMuchTied && !text.tied_link_remedy.empty() ? text.tied_link_remedy : text.link_remedy;
  }
  if (limit.kind == Limit::Kind::kLatency) out.remedy = text.latency_remedy;
  if (!IsOfTheEnd(limit)) return;
  out.detail = OfTheStep(limit.busy_ratio * step_s, step_s);
  if (limit.kind == Limit::Kind::kTied) {
    out.detail = absl::StrCat(text.tied[limit.index].amount, ", ", out.detail);
    out.remedy = text.tied[limit.index].remedy;
  } else if (limit.kind == Limit::Kind::kNorm) {
    out.remedy = "fewer stages (spec.strategy.stages), or stages on devices that are nearer to the first";
  }
}

std::string Phrase(const wire::SimulatedLimit& limit) {
  if (limit.kind == "sync") return limit.name;
  if (limit.kind == "latency") return absl::StrFormat("the latency of %s", limit.name);
  if (limit.kind == "link") return absl::StrCat("the link ", limit.name, ", ", limit.detail);
  if (limit.kind == "resource") return absl::StrCat(limit.name, ", which several links share, ", limit.detail);
  if (!limit.detail.empty()) return absl::StrCat(limit.name, ", ", limit.detail);
  return absl::StrFormat("%s, busy %.0f%% of the step", limit.name, 100 * limit.busy_ratio);
}

// As the part of a phrase that names it.
std::string NameInText(const wire::SimulatedLimit& limit) {
  return limit.kind == "latency" ? absl::StrCat("the latency of ", limit.name) : limit.name;
}

// "93 to 100%", "95%"
std::string ShareRange(double least, double most) {
  const std::string low = absl::StrFormat("%.0f", 100 * least), high = absl::StrFormat("%.0f", 100 * most);
  return low == high ? low + "%" : absl::StrCat(low, " to ", high, "%");
}

struct SharedLink {
  std::string name;
  double busy_ratio = 0;
};
// A port or shared link, or a link.
SharedLink BusiestSharedLink(const wire::SimulatedStep& step) {
  SharedLink busiest;
  const auto consider = [&](double busy_ratio, const auto& name) {
    if (busy_ratio > busiest.busy_ratio) busiest = {name(), busy_ratio};
  };
  for (const wire::SimulatedResource& resource : step.resources)
    consider(resource.busy_ratio, [&] { return absl::StrCat("the shared ", resource.name); });
  for (const wire::SimulatedLink& link : step.links) {
    consider(link.busy_ratio, [&] { return absl::StrCat("the link ", link.src, " -> ", link.dst); });
  }
  return busiest;
}

// " All 4 stages are busy 93 to 100% of the step.", " Stage 0 on h3 is busy 95% of the step.": what is as busy as anything.
std::string WhatIsBusy(const wire::SimulatedStep& step) {
  double most = 0;
  for (const wire::SimulatedStage& stage : step.stages) most = std::max(most, stage.busy_ratio);
  const double busiest_stage = most;
  const SharedLink link = BusiestSharedLink(step);
  most = std::max(most, link.busy_ratio);
  if (step.stages.empty() || most <= 0) return "";
  if (most < kMinBusy) return absl::StrFormat(" No stage is busy more than %.0f%% of the step: the rest is waiting.", 100 * busiest_stage);
  const auto is_near = [&](double busy_ratio) { return busy_ratio >= std::max(kMinBusy, most - kBusyMargin); };
  std::vector<std::string> parts;
  std::vector<const wire::SimulatedStage*> near;
  for (const wire::SimulatedStage& stage : step.stages) {
    if (is_near(stage.busy_ratio)) near.push_back(&stage);
  }
  if (near.size() == 1) {
    parts.push_back(absl::StrFormat("stage %d on %s is busy %.0f%%", near[0]->index, near[0]->device, 100 * near[0]->busy_ratio));
  } else if (!near.empty()) {
    const auto by_busy = [](const auto* a, const auto* b) { return a->busy_ratio < b->busy_ratio; };
    const auto [least, top] = std::minmax_element(near.begin(), near.end(), by_busy);
    const bool all = near.size() == step.stages.size();
    parts.push_back(absl::StrCat(all && near.size() > 2 ? "all "
                                 : all                  ? "both"
                                                        : "",
                                 all && near.size() == 2 ? "" : absl::StrCat(near.size()),
                                 all ? "" : absl::StrCat(" of ", step.stages.size()), " stages are busy ",
                                 ShareRange((*least)->busy_ratio, (*top)->busy_ratio)));
  }
  if (is_near(link.busy_ratio)) parts.push_back(absl::StrFormat("%s is busy %.0f%%", link.name, 100 * link.busy_ratio));
  std::string text = absl::StrJoin(parts, ", and ");
  text[0] = absl::ascii_toupper(static_cast<unsigned char>(text[0]));
  return absl::StrCat(" ", text, " of the step.");
}

}  // namespace

StepText StepTextOf(const scheduler::PlannedPipeline& plan, const workload::Workload& workload) {
  StepText text{.schedule = std::string(plan.schedule.name())};
  for (const scheduler::PlannedStage& stage : plan.stages) text.devices.push_back(stage.device_names.front());
  if (workload.job.spec.compression.policy == job::CompressionPolicy::kNone)
    text.link_remedy = "spec.compression.policy: adatopk (codecs where they pay), or ";
  text.link_remedy += "a faster link";
  text.latency_remedy = "a larger spec.training.globalBatchSize, whose micro-batches share it, or fewer stages (spec.strategy.stages)";
  const models::Family* const family = job::FamilyOf(workload.job.spec.model);
  const bool may_be_untied = family != nullptr && family->stored() != nullptr;
  const std::string untie = may_be_untied ? absl::StrCat("spec.model.config.", family->stored()->tied_head.field,
                                                         ": false (the head then has weights of its own)")
                                          : "";
  if (may_be_untied) text.tied_link_remedy = absl::StrCat(untie, ", or ", text.link_remedy);
  for (const scheduler::TiedExchange& exchange : plan.tied) {
    std::vector<std::string> remedies;
    const bool exact = exchange.codec == "fp32";
    if (exact && workload.job.spec.compression.policy == job::CompressionPolicy::kNone) {
      remedies.emplace_back("spec.compression.policy: adatopk (they are then compressed where it pays)");
    } else if (exact && workload.job.spec.strategy.replicas == 1) {
      remedies.emplace_back("spec.compression.tiedGradients: int8");
    }
    const int64_t largest = *std::max_element(exchange.sent_bytes.begin(), exchange.sent_bytes.end());
    if (may_be_untied) remedies.push_back(untie);
    remedies.emplace_back("a faster link");
    text.tied.push_back({.parameter = exchange.parameter,
                         .amount = absl::StrCat(scheduler::TrafficText(static_cast<double>(largest)),
                                                exact ? std::string(" uncompressed") : absl::StrCat(" as ", exchange.codec)),
                         .remedy = absl::StrJoin(remedies, ", or ")});
  }
  return text;
}

std::string LimitSentence(const wire::SimulatedStep& step, size_t runner_up) {
  const std::vector<wire::SimulatedLimit>& limits = step.limits;
  if (limits.empty()) return "Nothing takes time in this step.";
  const std::string tenth = absl::StrFormat("%.0f%%", 100 * scheduler::kProbe);
  if (limits[0].gain < kMinGainOfALimit) {
    return absl::StrFormat("Nothing alone limits the step: %s less time of one thing would save at most %.1f%% (%s).%s", tenth,
                           100 * limits[0].gain, NameInText(limits[0]), WhatIsBusy(step));
  }
  const bool several = limits[0].kind == "tied" || limits[0].kind == "norm";
  std::string sentence = absl::StrFormat("The step is limited by %s: if %s took %s less time, the step would be %.1f%% shorter.",
                                         Phrase(limits[0]), several ? "they" : "it", tenth, 100 * limits[0].gain);
  if (!limits[0].remedy.empty()) absl::StrAppend(&sentence, " What would help: ", limits[0].remedy, ".");
  if (runner_up == 0 || limits[runner_up].gain < kMinGainOfARunnerUp) return sentence;
  const wire::SimulatedLimit& next = limits[runner_up];
  absl::StrAppendFormat(&sentence, " Next is %s: %.1f%%", Phrase(next), 100 * next.gain);
  // Else it looks as if the wrong one were named first.
  const bool busier = next.kind == "stage" && limits[0].kind == "stage" && next.busy_ratio > limits[0].busy_ratio;
  return absl::StrCat(sentence, busier ? ", since less of its work is waited for." : ".");
}

wire::SimulatedStep StepDocument(const scheduler::PipelineInput& input, const scheduler::Simulation& simulation, const StepText& text,
                                 const scheduler::StopFunction& stop, int probed) {
  const double step_s = simulation.step_s;
  const auto share = [&](double seconds) { return step_s > 0 ? seconds / step_s : 0; };
  wire::SimulatedStep step{.step_seconds = step_s,
                           .schedule = text.schedule,
                           .virtual_stages = input.virtual_stages,
                           .runnable = text.runnable,
                           .micro_batches = input.micro_batches};
  for (size_t s = 0; s < simulation.stages.size(); ++s) {
    const scheduler::StageUsage& use = simulation.stages[s];
    step.stages.push_back({.index = static_cast<int>(s),
                           .device = text.devices[s],
                           .busy_ratio = share(use.busy_s()),
                           .forward_seconds = use.forward_s,
                           .backward_seconds = use.backward_s,
                           .weights_seconds = use.weights_s,
                           .codec_seconds = use.codec_s,
                           .update_seconds = use.update_s,
                           .idle_seconds = use.idle_s,
                           .end_seconds = use.end_s,
                           .peak_in_flight = use.peak_in_flight});
  }
  for (const scheduler::LinkUsage& use : simulation.links) {
    step.links.push_back({.src = text.devices[use.src],
                          .dst = text.devices[use.dst],
                          .src_stage = use.src,
                          .dst_stage = use.dst,
                          .backward = use.kind == scheduler::LinkUsage::Kind::kGradients,
                          .tied = use.kind == scheduler::LinkUsage::Kind::kTied,
                          .norm = use.kind == scheduler::LinkUsage::Kind::kNorm,
                          .messages = use.messages,
                          .bytes = use.bytes,
                          .busy_ratio = share(use.busy_s),
                          .busy_seconds = use.busy_s,
                          .queued_seconds = use.queued_s,
                          .latency_seconds = use.latency_s});
  }
  for (const scheduler::SharedLinkUsage& use : simulation.shared) {
    step.resources.push_back({.name = use.name, .bytes = use.bytes, .busy_ratio = share(use.busy_s)});
  }
  std::stable_sort(step.resources.begin(), step.resources.end(), [](const auto& a, const auto& b) { return a.busy_ratio > b.busy_ratio; });
  const std::vector<Limit> limits = scheduler::FindLimits(input, simulation, probed, stop);
  std::vector<std::string> parameters;
  for (const StepText::Tied& tied : text.tied) parameters.push_back(tied.parameter);
  size_t runner_up = 0;
  for (const Limit& limit : limits) {
    if (step.limits.size() == kMaxLimits) break;
    if (runner_up == 0 && !step.limits.empty() && !scheduler::SamePlace(limits[0], limit, input, simulation))
      runner_up = step.limits.size();
    step.limits.push_back({.kind = KindName(limit.kind),
                           .name = scheduler::NameOf(limit, simulation, text.devices, parameters),
                           .busy_ratio = limit.busy_ratio,
                           .gain = limit.gain});
    Describe(limit, step_s, text, step.limits.back());
  }
  step.bottleneck = LimitSentence(step, runner_up);
  return step;
}

wire::SimulatedSpread SpreadDocument(const scheduler::StepSpread& spread) {
  return {.steps = spread.steps,
          .mean_seconds = spread.mean_s,
          .p50_seconds = spread.p50_s,
          .p95_seconds = spread.p95_s,
          .min_seconds = spread.min_s,
          .max_seconds = spread.max_s};
}

}  // namespace fusionllm::planning
