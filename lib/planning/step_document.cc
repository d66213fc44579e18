#include "lib/planning/step_document.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "lib/job/model_config.h"
#include "lib/models/family.h"
#include "lib/scheduler/bottlenecks.h"
#include "lib/scheduler/text_format.h"

namespace fusionllm::planning {
namespace {

using scheduler::Bottleneck;

constexpr size_t kMaxBottlenecks = 8;
constexpr double kMinGainOfARunnerUp = 0.005;
// Shares of a step. What is busy for less of it waits for others; what is within the margin of the busiest is as near its limit.
constexpr double kMinBusy = 0.5;
constexpr double kBusyMargin = 0.15;
constexpr double kMinTiedPart = 0.005;
constexpr double kMuchTied = 0.2;

const char* KindName(Bottleneck::Kind kind) {
  switch (kind) {
    case Bottleneck::Kind::kStage:
      return "stage";
    case Bottleneck::Kind::kLink:
      return "link";
    case Bottleneck::Kind::kShared:
      return "resource";
    case Bottleneck::Kind::kTied:
      return "tied";
    case Bottleneck::Kind::kNorm:
      return "norm";
    case Bottleneck::Kind::kUpdate:
      return "update";
    default:
      return "latency";
  }
}

// "25.7 of 29.7 s"
std::string OfTheStep(double seconds, double step_s) {
  return step_s < 1 ? absl::StrFormat("%.3g of %.3g ms", 1e3 * seconds, 1e3 * step_s) : absl::StrFormat("%.3g of %.3g s", seconds, step_s);
}

bool IsOfTheEnd(const Bottleneck& bottleneck) {
  return bottleneck.kind == Bottleneck::Kind::kTied || bottleneck.kind == Bottleneck::Kind::kNorm ||
         bottleneck.kind == Bottleneck::Kind::kUpdate;
}

std::string Percent(double ratio) { return absl::StrFormat("%.0f%%", 100 * ratio); }

// "busy 62% of the step", "busy 62% of the step one way and 45% the other, tied gradients 43% of the step"
std::string BusyText(const Bottleneck& bottleneck) {
  std::string text = absl::StrCat("busy ", Percent(bottleneck.busy_ratio), " of the step");
  if (bottleneck.reverse >= 0) absl::StrAppend(&text, " one way and ", Percent(bottleneck.reverse_busy_ratio), " the other");
  if (bottleneck.tied_ratio > kMinTiedPart) absl::StrAppend(&text, ", tied gradients ", Percent(bottleneck.tied_ratio), " of the step");
  return text;
}

void Describe(const Bottleneck& bottleneck, double step_s, const StepText& text, wire::SimulatedBottleneck& out) {
  if (bottleneck.kind == Bottleneck::Kind::kLink || bottleneck.kind == Bottleneck::Kind::kShared) {
    out.detail = BusyText(bottleneck);
    out.remedy = bottleneck.tied_ratio > kMuchTied && !text.tied_link_remedy.empty() ? text.tied_link_remedy : text.link_remedy;
  }
  if (bottleneck.kind == Bottleneck::Kind::kLatency) out.remedy = text.latency_remedy;
  if (!IsOfTheEnd(bottleneck)) return;
  out.detail = OfTheStep(bottleneck.busy_ratio * step_s, step_s);
  if (bottleneck.kind == Bottleneck::Kind::kTied) {
    out.detail = absl::StrCat(text.tied[bottleneck.index].amount, ", ", out.detail);
    out.remedy = text.tied[bottleneck.index].remedy;
  } else if (bottleneck.kind == Bottleneck::Kind::kNorm) {
    out.remedy = "fewer stages (spec.strategy.stages), or stages on devices that are nearer to the first";
  }
}

std::string Phrase(const wire::SimulatedBottleneck& bottleneck) {
  if (bottleneck.kind == "sync") return bottleneck.name;
  if (bottleneck.kind == "latency") return absl::StrFormat("the latency of %s", bottleneck.name);
  if (bottleneck.kind == "link") return absl::StrCat("the link ", bottleneck.name, ", ", bottleneck.detail);
  if (bottleneck.kind == "resource") return absl::StrCat(bottleneck.name, ", which several links share, ", bottleneck.detail);
  if (!bottleneck.detail.empty()) return absl::StrCat(bottleneck.name, ", ", bottleneck.detail);
  return absl::StrFormat("%s, busy %.0f%% of the step", bottleneck.name, 100 * bottleneck.busy_ratio);
}

// As the part of a phrase that names it.
std::string NameInText(const wire::SimulatedBottleneck& bottleneck) {
  return bottleneck.kind == "latency" ? absl::StrCat("the latency of ", bottleneck.name) : bottleneck.name;
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
  const bool may_be_untied = family != nullptr && family->hugging_face_format() != nullptr;
  const std::string untie = may_be_untied ? absl::StrCat("spec.model.config.", family->hugging_face_format()->tied_head.field,
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

std::string BottleneckSentence(const wire::SimulatedStep& step, size_t runner_up) {
  const std::vector<wire::SimulatedBottleneck>& bottlenecks = step.bottlenecks;
  if (bottlenecks.empty()) return "Nothing takes time in this step.";
  const std::string tenth = absl::StrFormat("%.0f%%", 100 * scheduler::kProbedSpeedUp);
  if (bottlenecks[0].gain < kMinBottleneckGain) {
    return absl::StrFormat("Nothing alone limits the step: %s less time of one thing would save at most %.1f%% (%s).%s", tenth,
                           100 * bottlenecks[0].gain, NameInText(bottlenecks[0]), WhatIsBusy(step));
  }
  const bool several = bottlenecks[0].kind == "tied" || bottlenecks[0].kind == "norm";
  std::string sentence = absl::StrFormat("The step is limited by %s: if %s took %s less time, the step would be %.1f%% shorter.",
                                         Phrase(bottlenecks[0]), several ? "they" : "it", tenth, 100 * bottlenecks[0].gain);
  if (!bottlenecks[0].remedy.empty()) absl::StrAppend(&sentence, " What would help: ", bottlenecks[0].remedy, ".");
  if (runner_up == 0 || bottlenecks[runner_up].gain < kMinGainOfARunnerUp) return sentence;
  const wire::SimulatedBottleneck& next = bottlenecks[runner_up];
  absl::StrAppendFormat(&sentence, " Next is %s: %.1f%%", Phrase(next), 100 * next.gain);
  // Else it looks as if the wrong one were named first.
  const bool busier = next.kind == "stage" && bottlenecks[0].kind == "stage" && next.busy_ratio > bottlenecks[0].busy_ratio;
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
  const std::vector<Bottleneck> bottlenecks = scheduler::FindBottlenecks(input, simulation, probed, stop);
  std::vector<std::string> parameters;
  for (const StepText::Tied& tied : text.tied) parameters.push_back(tied.parameter);
  size_t runner_up = 0;
  for (const Bottleneck& bottleneck : bottlenecks) {
    if (step.bottlenecks.size() == kMaxBottlenecks) break;
    if (runner_up == 0 && !step.bottlenecks.empty() && !scheduler::SamePlace(bottlenecks[0], bottleneck, input, simulation))
      runner_up = step.bottlenecks.size();
    step.bottlenecks.push_back({.kind = KindName(bottleneck.kind),
                                .name = scheduler::NameOf(bottleneck, simulation, text.devices, parameters),
                                .busy_ratio = bottleneck.busy_ratio,
                                .gain = bottleneck.gain});
    Describe(bottleneck, step_s, text, step.bottlenecks.back());
  }
  step.bottleneck = BottleneckSentence(step, runner_up);
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
