#include "lib/planning/step_document.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace fusionllm::planning {
namespace {

using scheduler::Limit;

// Each kind; more are neither read nor likely.
constexpr int kMostProbed = 16;
constexpr size_t kMostLimits = 8;
// Less is no limit: the step is made of many things.
constexpr double kWorthSaying = 0.005;

const char* KindName(Limit::Kind kind) {
  switch (kind) {
    case Limit::Kind::kStage:
      return "stage";
    case Limit::Kind::kLink:
      return "link";
    case Limit::Kind::kShared:
      return "resource";
    default:
      return "latency";
  }
}

std::string NameOf(const Limit& limit, const scheduler::Simulation& simulation, const StepText& text) {
  if (limit.kind == Limit::Kind::kStage) return absl::StrFormat("stage %d on %s", limit.index, text.devices[limit.index]);
  if (limit.kind == Limit::Kind::kShared) return simulation.shared[limit.index].name;
  const scheduler::LinkUse& use = simulation.links[limit.index];
  return absl::StrFormat("%s -> %s (%s)", text.devices[use.src], text.devices[use.dst], use.backward ? "gradients" : "activations");
}

std::string Phrase(const wire::SimulatedLimit& limit) {
  if (limit.kind == "sync") return limit.name;
  if (limit.kind == "latency") return absl::StrFormat("the latency of %s", limit.name);
  if (limit.kind == "link") return absl::StrFormat("the link %s, busy %.0f%% of the step", limit.name, 100 * limit.busy_ratio);
  if (limit.kind == "resource")
    return absl::StrFormat("%s, which several links share, busy %.0f%% of the step", limit.name, 100 * limit.busy_ratio);
  return absl::StrFormat("%s, busy %.0f%% of the step", limit.name, 100 * limit.busy_ratio);
}

// A shared resource and a link that passes it are one limit.
bool SamePlace(const Limit& a, const Limit& b, const scheduler::PipelineInput& input, const scheduler::Simulation& simulation) {
  const Limit& shared = a.kind == Limit::Kind::kShared ? a : b;
  const Limit& link = a.kind == Limit::Kind::kShared ? b : a;
  if (shared.kind != Limit::Kind::kShared || link.kind != Limit::Kind::kLink) return false;
  const scheduler::LinkUse& use = simulation.links[link.index];
  const int wire = simulation.shared[shared.index].wire;
  return std::any_of(input.links.begin(), input.links.end(), [&](const scheduler::StageLink& candidate) {
    const int src = candidate.src % input.workers(), dst = candidate.dst % input.workers();
    if ((use.backward ? dst : src) != use.src || (use.backward ? src : dst) != use.dst) return false;
    const scheduler::Channel& channel = use.backward ? candidate.backward : candidate.forward;
    return channel.used &&
           std::any_of(channel.wires.begin(), channel.wires.end(), [&](const scheduler::WireUse& w) { return w.wire == wire; });
  });
}

}  // namespace

std::string LimitSentence(const std::vector<wire::SimulatedLimit>& limits, size_t runner_up) {
  if (limits.empty()) return "Nothing takes time in this step.";
  const std::string tenth = absl::StrFormat("%.0f%%", 100 * scheduler::kProbe);
  if (limits[0].gain < kWorthSaying) {
    return absl::StrFormat("Nothing alone limits the step: the most that %s less time of one thing would save is %.1f%% (%s).", tenth,
                           100 * limits[0].gain, Phrase(limits[0]));
  }
  std::string sentence = absl::StrFormat("The step is limited by %s: if it took %s less time, the step would be %.1f%% shorter.",
                                         Phrase(limits[0]), tenth, 100 * limits[0].gain);
  if (runner_up > 0) absl::StrAppendFormat(&sentence, " Next is %s: %.1f%%.", Phrase(limits[runner_up]), 100 * limits[runner_up].gain);
  return sentence;
}

wire::SimulatedStep StepDocument(const scheduler::PipelineInput& input, const scheduler::Simulation& simulation, const StepText& text,
                                 const scheduler::StopFunction& stop) {
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
                           .peak_in_flight = use.peak_in_flight});
  }
  for (const scheduler::LinkUse& use : simulation.links) {
    step.links.push_back({.src = text.devices[use.src],
                          .dst = text.devices[use.dst],
                          .src_stage = use.src,
                          .dst_stage = use.dst,
                          .backward = use.backward,
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
  const std::vector<Limit> limits = scheduler::FindLimits(input, simulation, kMostProbed, stop);
  size_t runner_up = 0;
  for (const Limit& limit : limits) {
    if (step.limits.size() == kMostLimits) break;
    if (runner_up == 0 && !step.limits.empty() && !SamePlace(limits[0], limit, input, simulation)) runner_up = step.limits.size();
    step.limits.push_back(
        {.kind = KindName(limit.kind), .name = NameOf(limit, simulation, text), .busy_ratio = limit.busy_ratio, .gain = limit.gain});
  }
  step.bottleneck = LimitSentence(step.limits, runner_up);
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
