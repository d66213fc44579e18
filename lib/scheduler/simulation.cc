#include "lib/scheduler/simulation.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

namespace fusionllm::scheduler {
namespace {

using Kind = TimelineSpan::Kind;

// Adds up what the spans say; passes them on.
class Tally final : public SpanSink {
 public:
  Tally(const PipelineInput& input, const std::vector<std::string>& wires, SpanSink* next) : input_(input), next_(next) {
    out_.stages.resize(input.workers());
    open_.resize(input.workers());
    for (size_t l = 0; l < input.links.size(); ++l) {
      for (const bool forward : {true, false}) AddLink(input.links[l], forward);
    }
    for (size_t w = 0; w < wires.size(); ++w) {
      if (!wires[w].empty()) shared_of_[static_cast<int>(w)] = SharedUse{.wire = static_cast<int>(w), .name = wires[w]};
    }
  }

  void Add(const TimelineSpan& span) override {
    if (next_ != nullptr) next_->Add(span);
    if (span.kind == Kind::kForwardMessage || span.kind == Kind::kBackwardMessage) {
      AddMessage(span);
      return;
    }
    const int worker = span.kind == Kind::kUpdate ? span.stage : span.stage % input_.workers();
    StageUse& use = out_.stages[worker];
    const StageTiming& timing = input_.stages[span.stage];
    const double seconds = span.end_s - span.begin_s;
    const auto split_codec = [&](double codec_s, double whole_s, double& compute_s) {
      const double share = whole_s > 0 ? codec_s / whole_s : 0;
      use.codec_s += seconds * share;
      compute_s += seconds - seconds * share;
    };
    if (span.kind == Kind::kForward) {
      use.peak_in_flight = std::max(use.peak_in_flight, ++open_[worker]);
      split_codec(timing.codec_forward_s, timing.forward_s, use.forward_s);
    } else if (span.kind == Kind::kBackward) {
      // Its stash is free when it ends; the next forward cannot begin before.
      --open_[worker];
      split_codec(timing.codec_backward_s, timing.backward_s - (input_.split_backward ? timing.weights_s : 0), use.backward_s);
    } else {
      (span.kind == Kind::kWeights ? use.weights_s : use.update_s) += seconds;
    }
  }

  Simulation Finish(const PipelineResult& result) {
    out_.step_s = result.step_s;
    out_.complete = result.complete;
    for (StageUse& use : out_.stages) use.idle_s = std::max(0.0, result.step_s - use.busy_s());
    for (auto& [key, use] : link_of_) out_.links.push_back(use);
    for (auto& [wire, use] : shared_of_) {
      if (use.pairs > 0) out_.shared.push_back(use);
    }
    return std::move(out_);
  }

 private:
  using LinkKey = std::tuple<int, int, bool>;

  LinkKey KeyOf(const StageLink& link, bool forward) const {
    const int src = link.src % input_.workers(), dst = link.dst % input_.workers();
    return forward ? LinkKey(src, dst, false) : LinkKey(dst, src, true);
  }
  void AddLink(const StageLink& link, bool forward) {
    const Channel& channel = forward ? link.forward : link.backward;
    if (!channel.used) return;
    const LinkKey key = KeyOf(link, forward);
    link_of_[key] = {.src = std::get<0>(key), .dst = std::get<1>(key), .backward = std::get<2>(key), .latency_s = channel.latency_s};
  }
  void AddMessage(const TimelineSpan& span) {
    const bool forward = span.kind == Kind::kForwardMessage;
    const StageLink& link = input_.links[span.stage];
    const Channel& channel = forward ? link.forward : link.backward;
    LinkUse& use = link_of_[KeyOf(link, forward)];
    ++use.messages;
    use.bytes += channel.bytes;
    use.busy_s += span.end_s - span.begin_s;
    if (span.begin_s - span.sent_s >= 1e-9) use.queued_s += span.begin_s - span.sent_s;  // less is what rounding leaves
    double longest_s = 0;
    for (const WireUse& wire : channel.wires) longest_s = std::max(longest_s, wire.hold_s);
    for (const WireUse& wire : channel.wires) {
      const auto shared = shared_of_.find(wire.wire);
      if (shared == shared_of_.end()) continue;
      shared->second.pairs += span.micro_batch == 0;
      shared->second.bytes += channel.bytes;
      if (longest_s > 0) shared->second.busy_s += (span.end_s - span.begin_s) * wire.hold_s / longest_s;
    }
  }

  const PipelineInput& input_;
  SpanSink* const next_;
  Simulation out_;
  std::vector<int> open_;
  std::map<LinkKey, LinkUse> link_of_;
  std::map<int, SharedUse> shared_of_;
};

// The `most` indices with the largest values above 0.
std::vector<int> Largest(const std::vector<double>& values, int most) {
  std::vector<int> order;
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] > 0) order.push_back(static_cast<int>(i));
  }
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return values[a] > values[b]; });
  if (order.size() > static_cast<size_t>(most)) order.resize(most);
  return order;
}

// A pair's own rate is often no more than the least of those that it shares, and then becomes faster with it.
void SpeedUpWire(Channel& channel, int wire, double factor) {
  double shared_s = 0, faster_s = 0;
  for (size_t i = 1; i < channel.wires.size(); ++i) {
    WireUse& use = channel.wires[i];
    shared_s = std::max(shared_s, use.hold_s);
    if (use.wire == wire) use.hold_s *= factor;
    faster_s = std::max(faster_s, use.hold_s);
  }
  if (channel.wires.size() > 1 && channel.wires[0].hold_s <= shared_s)
    channel.wires[0].hold_s = std::min(channel.wires[0].hold_s, faster_s);
}

void SpeedUp(PipelineInput& input, const Simulation& simulation, const Limit& limit) {
  constexpr double kLess = 1 - kProbe;
  if (limit.kind == Limit::Kind::kStage) {
    for (size_t s = limit.index; s < input.stages.size(); s += input.workers()) {
      StageTiming& timing = input.stages[s];
      for (double* seconds : {&timing.forward_s, &timing.backward_s, &timing.weights_s, &timing.update_s}) *seconds *= kLess;
    }
    return;
  }
  for (StageLink& link : input.links) {
    for (const bool forward : {true, false}) {
      Channel& channel = forward ? link.forward : link.backward;
      if (!channel.used) continue;
      if (limit.kind == Limit::Kind::kShared) {
        SpeedUpWire(channel, simulation.shared[limit.index].wire, kLess);
        continue;
      }
      const LinkUse& use = simulation.links[limit.index];
      const int src = link.src % input.workers(), dst = link.dst % input.workers();
      if (use.backward == forward || use.src != (forward ? src : dst) || use.dst != (forward ? dst : src)) continue;
      if (limit.kind == Limit::Kind::kLatency) {
        channel.latency_s *= kLess;
      } else {
        for (WireUse& wire : channel.wires) wire.hold_s *= kLess;
      }
    }
  }
}

}  // namespace

Simulation Simulate(const PipelineInput& input, const std::vector<std::string>& wires, const PassNoise* noise, SpanSink* spans) {
  Tally tally(input, wires, spans);
  return tally.Finish(PipelineSimulator().Run(input, &tally, noise));
}

std::vector<Limit> FindLimits(const PipelineInput& input, const Simulation& simulation, int most, const StopFunction& stop) {
  std::vector<Limit> limits;
  const auto add = [&](Limit::Kind kind, const std::vector<double>& ratios) {
    for (const int i : Largest(ratios, most)) limits.push_back({.kind = kind, .index = i, .busy_ratio = ratios[i]});
  };
  if (!(simulation.step_s > 0)) return limits;
  std::vector<double> stages, links, latencies, shared;
  for (const StageUse& use : simulation.stages) stages.push_back(use.busy_s() / simulation.step_s);
  for (const LinkUse& use : simulation.links) {
    links.push_back(use.busy_s / simulation.step_s);
    latencies.push_back(use.latency_s / simulation.step_s);
  }
  // A wire that only one link passes says nothing that the link does not.
  for (const SharedUse& use : simulation.shared) shared.push_back(use.pairs > 1 ? use.busy_s / simulation.step_s : 0);
  add(Limit::Kind::kStage, stages);
  add(Limit::Kind::kLink, links);
  add(Limit::Kind::kShared, shared);
  add(Limit::Kind::kLatency, latencies);
  PipelineSimulator simulator;
  const double step_s = simulator.Run(input).step_s;
  for (Limit& limit : limits) {
    if (stop != nullptr && stop()) break;
    PipelineInput faster = input;
    SpeedUp(faster, simulation, limit);
    limit.gain = 1 - simulator.Run(faster).step_s / step_s;
  }
  std::stable_sort(limits.begin(), limits.end(), [](const Limit& a, const Limit& b) { return a.gain > b.gain; });
  return limits;
}

std::vector<double> SimulateStepSeconds(const PipelineInput& input, const NoiseSpec& noise, int steps, const StopFunction& stop) {
  std::vector<double> seconds;
  PipelineSimulator simulator;
  for (int step = 0; step < steps && !(stop != nullptr && stop()); ++step) {
    const LogNormalNoise jitter(noise, step);
    seconds.push_back(simulator.Run(WithStragglers(input, noise, step), nullptr, noise.jitter > 0 ? &jitter : nullptr).step_s);
  }
  return seconds;
}

StepSpread SimulateSteps(const PipelineInput& input, const NoiseSpec& noise, int steps, const StopFunction& stop) {
  return SpreadOf(SimulateStepSeconds(input, noise, steps, stop));
}

StepSpread SpreadOf(std::vector<double> seconds) {
  StepSpread spread{.steps = static_cast<int>(seconds.size())};
  if (seconds.empty()) return spread;
  for (const double s : seconds) spread.mean_s += s / static_cast<double>(seconds.size());
  std::sort(seconds.begin(), seconds.end());
  const auto rank = [&](double share) {
    const auto nearest = static_cast<size_t>(std::ceil(share * static_cast<double>(seconds.size())));
    return seconds[std::clamp<size_t>(nearest, 1, seconds.size()) - 1];
  };
  spread.p50_s = rank(0.5);
  spread.p95_s = rank(0.95);
  spread.least_s = seconds.front();
  spread.most_s = seconds.back();
  return spread;
}

}  // namespace fusionllm::scheduler
