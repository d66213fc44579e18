#include "lib/planning/step_document.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "lib/scheduler/words.h"

namespace fusionllm::planning {
namespace {

using scheduler::Limit;

constexpr size_t kMostLimits = 8;
// Of a step, by a tenth less time. Less is no limit: the step is made of many things.
constexpr double kMinGainOfALimit = 0.02;
constexpr double kMinGainOfARunnerUp = 0.005;
// Shares of a step. What is busy for less of it waits for others; what is within the margin of the busiest is as near its limit.
constexpr double kMinBusy = 0.5;
constexpr double kBusyMargin = 0.15;

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

void Describe(const Limit& limit, double step_s, const StepText& text, wire::SimulatedLimit& out) {
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
  if (!limit.detail.empty()) return absl::StrCat(limit.name, ", ", limit.detail);
  if (limit.kind == "latency") return absl::StrFormat("the latency of %s", limit.name);
  if (limit.kind == "link") return absl::StrFormat("the link %s, busy %.0f%% of the step", limit.name, 100 * limit.busy_ratio);
  if (limit.kind == "resource")
    return absl::StrFormat("%s, which several links share, busy %.0f%% of the step", limit.name, 100 * limit.busy_ratio);
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

struct Wire {
  std::string name;
  double busy_ratio = 0;
};
// A port or line that links share, or a link.
Wire BusiestWire(const wire::SimulatedStep& step) {
  Wire busiest;
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
  const Wire wire = BusiestWire(step);
  most = std::max(most, wire.busy_ratio);
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
  if (is_near(wire.busy_ratio)) parts.push_back(absl::StrFormat("%s is busy %.0f%%", wire.name, 100 * wire.busy_ratio));
  std::string text = absl::StrJoin(parts, ", and ");
  text[0] = absl::ascii_toupper(static_cast<unsigned char>(text[0]));
  return absl::StrCat(" ", text, " of the step.");
}

// A shared resource and what passes it are one limit.
bool SamePlace(const Limit& a, const Limit& b, const scheduler::PipelineInput& input, const scheduler::Simulation& simulation) {
  const Limit& shared = a.kind == Limit::Kind::kShared ? a : b;
  const Limit& link = a.kind == Limit::Kind::kShared ? b : a;
  const auto tied_over = [&](int exchange, const auto& passes) {
    return std::any_of(input.tied.begin(), input.tied.end(), [&](const scheduler::TiedMessage& tied) {
      return tied.exchange == exchange && passes(tied.from, tied.to, tied.channel);
    });
  };
  // Tied gradients and the link that they cross.
  for (const auto& [tied, other] : {std::pair(a, b), std::pair(b, a)}) {
    if (tied.kind != Limit::Kind::kTied || other.kind != Limit::Kind::kLink) continue;
    const scheduler::LinkUse& use = simulation.links[other.index];
    if (tied_over(tied.index, [&](int from, int to, const auto&) { return from == use.src && to == use.dst; })) return true;
  }
  if (shared.kind != Limit::Kind::kShared) return false;
  const int wire = simulation.shared[shared.index].wire;
  const auto on_wire = [&](const scheduler::Channel& channel) {
    return std::any_of(channel.wires.begin(), channel.wires.end(), [&](const scheduler::WireUse& w) { return w.wire == wire; });
  };
  if (link.kind == Limit::Kind::kTied) return tied_over(link.index, [&](int, int, const auto& channel) { return on_wire(channel); });
  if (link.kind != Limit::Kind::kLink) return false;
  const scheduler::LinkUse& use = simulation.links[link.index];
  return std::any_of(input.links.begin(), input.links.end(), [&](const scheduler::StageLink& candidate) {
    const int src = candidate.src % input.workers(), dst = candidate.dst % input.workers();
    return (use.src == src && use.dst == dst && on_wire(candidate.forward)) ||
           (use.src == dst && use.dst == src && on_wire(candidate.backward));
  });
}

}  // namespace

StepText StepTextOf(const scheduler::Plan& plan, const workload::Workload& workload) {
  StepText text{.schedule = std::string(scheduler::Name(plan.schedule))};
  for (const scheduler::PlanStage& stage : plan.stages) text.devices.push_back(stage.device_names.front());
  const bool may_be_untied = workload.job.spec.model.family == job::Family::kGpt2;
  for (const scheduler::TiedExchange& exchange : plan.tied) {
    std::vector<std::string> remedies;
    const bool exact = exchange.codec == "fp32";
    if (exact && workload.job.spec.compression.policy == job::CompressionPolicy::kNone) {
      remedies.emplace_back("spec.compression.policy: adatopk (they are then compressed where it pays)");
    } else if (exact && workload.job.spec.strategy.replicas == 1) {
      remedies.emplace_back("spec.compression.tiedGradients: int8");
    }
    const int64_t largest = *std::max_element(exchange.sent_bytes.begin(), exchange.sent_bytes.end());
    if (may_be_untied) remedies.emplace_back("spec.model.config.tieWeights: false (the head then has weights of its own)");
    remedies.emplace_back("spec.strategy.pins that put all its uses on one device");
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
  if (runner_up > 0 && limits[runner_up].gain >= kMinGainOfARunnerUp)
    absl::StrAppendFormat(&sentence, " Next is %s: %.1f%%.", Phrase(limits[runner_up]), 100 * limits[runner_up].gain);
  return sentence;
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
    const scheduler::StageUse& use = simulation.stages[s];
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
  for (const scheduler::LinkUse& use : simulation.links) {
    step.links.push_back({.src = text.devices[use.src],
                          .dst = text.devices[use.dst],
                          .src_stage = use.src,
                          .dst_stage = use.dst,
                          .backward = use.kind == scheduler::LinkUse::Kind::kGradients,
                          .tied = use.kind == scheduler::LinkUse::Kind::kTied,
                          .norm = use.kind == scheduler::LinkUse::Kind::kNorm,
                          .messages = use.messages,
                          .bytes = use.bytes,
                          .busy_ratio = share(use.busy_s),
                          .busy_seconds = use.busy_s,
                          .queued_seconds = use.queued_s,
                          .latency_seconds = use.latency_s});
  }
  for (const scheduler::SharedUse& use : simulation.shared) {
    step.resources.push_back({.name = use.name, .bytes = use.bytes, .busy_ratio = share(use.busy_s)});
  }
  std::stable_sort(step.resources.begin(), step.resources.end(), [](const auto& a, const auto& b) { return a.busy_ratio > b.busy_ratio; });
  const std::vector<Limit> limits = scheduler::FindLimits(input, simulation, probed, stop);
  std::vector<std::string> parameters;
  for (const StepText::Tied& tied : text.tied) parameters.push_back(tied.parameter);
  size_t runner_up = 0;
  for (const Limit& limit : limits) {
    if (step.limits.size() == kMostLimits) break;
    if (runner_up == 0 && !step.limits.empty() && !SamePlace(limits[0], limit, input, simulation)) runner_up = step.limits.size();
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
          .least_seconds = spread.least_s,
          .most_seconds = spread.most_s};
}

}  // namespace fusionllm::planning
