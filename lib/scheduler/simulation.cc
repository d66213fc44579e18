#include "lib/scheduler/simulation.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace fusionllm::scheduler {
namespace {

using Kind = TimelineSpan::Kind;

// Adds up what the spans say; passes them on.
class Tally final : public SpanSink {
 public:
  Tally(const PipelineInput& input, const std::vector<std::string>& wires, SpanSink* next) : input_(input), next_(next) {
    out_.stages.resize(input.workers());
    open_.resize(input.workers());
    last_pass_s_.resize(input.workers());
    for (size_t l = 0; l < input.links.size(); ++l) {
      for (const bool forward : {true, false}) AddLink(input.links[l], forward);
    }
    for (const TiedMessage& tied : input.tied) Use({tied.from, tied.to, LinkUse::Kind::kTied}, tied.channel.latency_s);
    for (const auto* messages : {&input.reports, &input.decisions}) {
      for (const EndMessage& message : *messages) AddEndMessage(message);
    }
    for (size_t w = 0; w < wires.size(); ++w) {
      if (!wires[w].empty()) shared_of_[static_cast<int>(w)] = SharedUse{.wire = static_cast<int>(w), .name = wires[w]};
    }
  }

  void Add(const TimelineSpan& span) override {
    if (next_ != nullptr) next_->Add(span);
    if (span.kind == Kind::kForwardMessage || span.kind == Kind::kBackwardMessage) {
      const StageLink& link = input_.links[span.stage];
      const bool forward = span.kind == Kind::kForwardMessage;
      AddMessage(span, KeyOf(link, forward), forward ? link.forward : link.backward);
      return;
    }
    if (span.kind == Kind::kTiedMessage) {
      const TiedMessage& tied = input_.tied[span.stage];
      AddMessage(span, {tied.from, tied.to, LinkUse::Kind::kTied}, tied.channel);
      return;
    }
    if (span.kind == Kind::kNorm) return;  // which waits
    const int worker = span.kind == Kind::kUpdate ? span.stage : span.stage % input_.workers();
    StageUse& use = out_.stages[worker];
    if (span.kind == Kind::kUpdate) use.end_s = span.begin_s - last_pass_s_[worker];
    last_pass_s_[worker] = span.end_s;
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
  using LinkKey = std::tuple<int, int, LinkUse::Kind>;

  LinkKey KeyOf(const StageLink& link, bool forward) const {
    const int src = link.src % input_.workers(), dst = link.dst % input_.workers();
    return forward ? LinkKey(src, dst, LinkUse::Kind::kActivations) : LinkKey(dst, src, LinkUse::Kind::kGradients);
  }
  LinkUse& Use(const LinkKey& key, double latency_s) {
    LinkUse& use = link_of_[key];
    std::tie(use.src, use.dst, use.kind) = key;
    use.latency_s = latency_s;
    return use;
  }
  void AddEndMessage(const EndMessage& message) {
    LinkUse& use = Use({message.from, message.to, LinkUse::Kind::kNorm}, message.latency_s);
    ++use.messages;
    use.bytes += message.bytes;
    use.busy_s += std::max(0.0, message.seconds - message.latency_s);
  }
  void AddLink(const StageLink& link, bool forward) {
    const Channel& channel = forward ? link.forward : link.backward;
    if (!channel.used) return;
    Use(KeyOf(link, forward), channel.latency_s);
  }
  void AddMessage(const TimelineSpan& span, const LinkKey& key, const Channel& channel) {
    const bool tied = span.kind == Kind::kTiedMessage;
    LinkUse& use = link_of_[key];
    double longest_s = 0;
    for (const WireUse& wire : channel.wires) longest_s = std::max(longest_s, wire.hold_s);
    // A tied message may let others pass between its pieces, and is then longer on its way than its wires are busy with it.
    const double busy_s = tied ? std::min(span.end_s - span.begin_s, longest_s) : span.end_s - span.begin_s;
    ++use.messages;
    use.bytes += channel.bytes;
    use.busy_s += busy_s;
    if (span.begin_s - span.sent_s >= 1e-9) use.queued_s += span.begin_s - span.sent_s;  // less is what rounding leaves
    for (const WireUse& wire : channel.wires) {
      const auto shared = shared_of_.find(wire.wire);
      if (shared == shared_of_.end()) continue;
      users_[wire.wire].insert({std::get<0>(key), std::get<1>(key)});
      shared->second.pairs = static_cast<int>(users_[wire.wire].size());
      shared->second.bytes += channel.bytes;
      if (longest_s > 0) shared->second.busy_s += busy_s * wire.hold_s / longest_s;
    }
  }

  const PipelineInput& input_;
  SpanSink* const next_;
  Simulation out_;
  std::vector<int> open_;
  std::map<LinkKey, LinkUse> link_of_;
  std::map<int, SharedUse> shared_of_;
  std::map<int, std::set<std::pair<int, int>>> users_;  // of a wire: directed pairs of workers
  std::vector<double> last_pass_s_;                     // by worker: when its newest pass ends
};

double LongestHold(const Channel& channel) {
  double longest_s = 0;
  for (const WireUse& wire : channel.wires) longest_s = std::max(longest_s, wire.hold_s);
  return longest_s;
}

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

constexpr double kLess = 1 - kProbe;

// Whether it is a part of the step's end alone.
bool SpeedUpEnd(PipelineInput& input, const Limit& limit) {
  if (limit.kind == Limit::Kind::kUpdate) {
    for (StageTiming& timing : input.stages) timing.update_s *= kLess;
  } else if (limit.kind == Limit::Kind::kNorm) {
    for (auto* messages : {&input.reports, &input.decisions}) {
      for (EndMessage& message : *messages) message.seconds *= kLess;
    }
  } else if (limit.kind == Limit::Kind::kTied) {
    for (TiedMessage& tied : input.tied) {
      if (tied.exchange != limit.index) continue;
      if (tied.channel.wires.empty()) tied.channel.latency_s *= kLess;  // by way of other stages
      for (WireUse& wire : tied.channel.wires) wire.hold_s *= kLess;
    }
  } else {
    return false;
  }
  return true;
}

void SpeedUpChannel(Channel& channel, int from, int to, const Simulation& simulation, const Limit& limit) {
  if (limit.kind == Limit::Kind::kShared) return SpeedUpWire(channel, simulation.shared[limit.index].wire, kLess);
  const LinkUse& use = simulation.links[limit.index];
  if (use.src != from || use.dst != to) return;
  if (limit.kind == Limit::Kind::kLatency) {
    channel.latency_s *= kLess;
  } else {
    for (WireUse& wire : channel.wires) wire.hold_s *= kLess;
  }
}

void SpeedUp(PipelineInput& input, const Simulation& simulation, const Limit& limit) {
  if (SpeedUpEnd(input, limit)) return;
  if (limit.kind == Limit::Kind::kStage) {
    for (size_t s = limit.index; s < input.stages.size(); s += input.workers()) {
      StageTiming& timing = input.stages[s];
      for (double* seconds : {&timing.forward_s, &timing.backward_s, &timing.weights_s, &timing.update_s}) *seconds *= kLess;
    }
    return;
  }
  for (StageLink& link : input.links) {
    const int src = link.src % input.workers(), dst = link.dst % input.workers();
    if (link.forward.used) SpeedUpChannel(link.forward, src, dst, simulation, limit);
    if (link.backward.used) SpeedUpChannel(link.backward, dst, src, simulation, limit);
  }
  for (TiedMessage& tied : input.tied) SpeedUpChannel(tied.channel, tied.from, tied.to, simulation, limit);
  if (limit.kind != Limit::Kind::kLatency) return;
  const LinkUse& use = simulation.links[limit.index];
  for (auto* messages : {&input.reports, &input.decisions}) {
    for (EndMessage& message : *messages) {
      if (message.from == use.src && message.to == use.dst) message.seconds -= kProbe * message.latency_s;
    }
  }
}

// By exchange: seconds of its longest message.
std::vector<double> ExchangeSeconds(const PipelineInput& input) {
  std::vector<double> seconds;
  for (const TiedMessage& tied : input.tied) {
    seconds.resize(std::max(seconds.size(), static_cast<size_t>(tied.exchange) + 1), 0);
    double& longest_s = seconds[tied.exchange];
    longest_s = std::max(longest_s, LongestHold(tied.channel) + tied.channel.latency_s);
  }
  return seconds;
}

double NormSeconds(const PipelineInput& input) {
  double report_s = 0, decision_s = 0;
  for (const EndMessage& message : input.reports) report_s = std::max(report_s, message.seconds);
  for (const EndMessage& message : input.decisions) decision_s = std::max(decision_s, message.seconds);
  return report_s + decision_s;
}

// Tied gradients that are most of what a wire costs are what limits the step; the wire is where.
void PutCausesFirst(std::vector<Limit>& limits) {
  constexpr double kMostOf = 0.75;
  if (limits.empty()) return;
  const Limit::Kind first = limits[0].kind;
  if (first != Limit::Kind::kLink && first != Limit::Kind::kShared) return;
  const auto tied = std::find_if(limits.begin(), limits.end(), [](const Limit& limit) { return limit.kind == Limit::Kind::kTied; });
  if (tied != limits.end() && tied->gain >= kMostOf * limits[0].gain) std::rotate(limits.begin(), tied, tied + 1);
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
  std::vector<double> stages, links, latencies, shared, tied = ExchangeSeconds(input);
  for (const StageUse& use : simulation.stages) stages.push_back(use.busy_s() / simulation.step_s);
  // Of a pair the first use stands for all.
  size_t first = 0;
  for (size_t l = 0; l < simulation.links.size(); ++l) {
    const LinkUse& use = simulation.links[l];
    links.push_back(0);
    latencies.push_back(0);
    if (use.src != simulation.links[first].src || use.dst != simulation.links[first].dst) first = l;
    if (use.kind == LinkUse::Kind::kNorm) continue;
    links[first] += use.busy_s / simulation.step_s;
    latencies[first] = use.latency_s / simulation.step_s;
  }
  for (double& seconds : tied) seconds /= simulation.step_s;
  double update_s = 0;
  for (const StageUse& use : simulation.stages) update_s = std::max(update_s, use.update_s);
  // A wire that only one link passes says nothing that the link does not.
  for (const SharedUse& use : simulation.shared) shared.push_back(use.pairs > 1 ? use.busy_s / simulation.step_s : 0);
  add(Limit::Kind::kStage, stages);
  add(Limit::Kind::kLink, links);
  add(Limit::Kind::kShared, shared);
  add(Limit::Kind::kLatency, latencies);
  add(Limit::Kind::kTied, tied);
  add(Limit::Kind::kNorm, {NormSeconds(input) / simulation.step_s});
  add(Limit::Kind::kUpdate, {update_s / simulation.step_s});
  PipelineSimulator simulator;
  const double step_s = simulator.Run(input).step_s;
  for (Limit& limit : limits) {
    if (stop != nullptr && stop()) break;
    PipelineInput faster = input;
    SpeedUp(faster, simulation, limit);
    limit.gain = 1 - simulator.Run(faster).step_s / step_s;
  }
  std::stable_sort(limits.begin(), limits.end(), [](const Limit& a, const Limit& b) { return a.gain > b.gain; });
  PutCausesFirst(limits);
  return limits;
}

const char* Name(LinkUse::Kind kind) {
  switch (kind) {
    case LinkUse::Kind::kActivations:
      return "activations";
    case LinkUse::Kind::kGradients:
      return "gradients";
    case LinkUse::Kind::kTied:
      return "tied gradients";
    default:
      return "global norm";
  }
}

std::string NameOf(const Limit& limit, const Simulation& simulation, const std::vector<std::string>& devices,
                   const std::vector<std::string>& tied) {
  switch (limit.kind) {
    case Limit::Kind::kStage:
      return absl::StrFormat("stage %d on %s", limit.index, devices[limit.index]);
    case Limit::Kind::kShared:
      return simulation.shared[limit.index].name;
    case Limit::Kind::kTied:
      return absl::StrCat("the tied gradients of ", tied[limit.index]);
    case Limit::Kind::kNorm:
      return "the reports of all stages to stage 0 and its answer with the global norm";
    case Limit::Kind::kUpdate:
      return "the optimizer's update";
    default:
      break;
  }
  const LinkUse& use = simulation.links[limit.index];
  std::vector<std::string> carried;
  for (const LinkUse& other : simulation.links) {
    if (other.src == use.src && other.dst == use.dst && other.kind != LinkUse::Kind::kNorm) carried.emplace_back(Name(other.kind));
  }
  return absl::StrFormat("%s -> %s (%s)", devices[use.src], devices[use.dst], absl::StrJoin(carried, ", "));
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
