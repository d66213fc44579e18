#include "lib/scheduler/bottlenecks.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace fusionllm::scheduler {
namespace {

double LongestHold(const Channel& channel) {
  double longest_s = 0;
  for (const LinkOccupancy& use : channel.shared_links) longest_s = std::max(longest_s, use.hold_s);
  return longest_s;
}

// The `max` indices with the largest values above 0.
std::vector<int> Largest(const std::vector<double>& values, int max) {
  std::vector<int> order;
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] > 0) order.push_back(static_cast<int>(i));
  }
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return values[a] > values[b]; });
  if (order.size() > static_cast<size_t>(max)) order.resize(max);
  return order;
}

// A pair's own rate is often no more than the least of those that it shares, and then becomes faster with it.
void SpeedUpSharedLink(Channel& channel, int shared_link, double factor) {
  double shared_s = 0, faster_s = 0;
  for (size_t i = 1; i < channel.shared_links.size(); ++i) {
    LinkOccupancy& use = channel.shared_links[i];
    shared_s = std::max(shared_s, use.hold_s);
    if (use.shared_link == shared_link) use.hold_s *= factor;
    faster_s = std::max(faster_s, use.hold_s);
  }
  if (channel.shared_links.size() > 1 && channel.shared_links[0].hold_s <= shared_s)
    channel.shared_links[0].hold_s = std::min(channel.shared_links[0].hold_s, faster_s);
}

constexpr double kLess = 1 - kProbedSpeedUp;

// Whether it is a part of the step's end alone.
bool SpeedUpEnd(PipelineInput& input, const Bottleneck& bottleneck) {
  if (bottleneck.kind == Bottleneck::Kind::kUpdate) {
    for (StageTiming& timing : input.stages) timing.update_s *= kLess;
  } else if (bottleneck.kind == Bottleneck::Kind::kNorm) {
    for (auto* messages : {&input.reports, &input.decisions}) {
      for (StepEndMessage& message : *messages) message.seconds *= kLess;
    }
  } else if (bottleneck.kind == Bottleneck::Kind::kTied) {
    for (TiedMessage& tied : input.tied) {
      if (tied.exchange != bottleneck.index) continue;
      if (tied.channel.shared_links.empty()) tied.channel.latency_s *= kLess;  // by way of other stages
      for (LinkOccupancy& use : tied.channel.shared_links) use.hold_s *= kLess;
    }
  } else {
    return false;
  }
  return true;
}

// Whether it concerns what goes from one worker to another: of a kLink or kLatency.
bool Concerns(const Bottleneck& bottleneck, const Simulation& simulation, int from, int to) {
  const auto is = [&](int index) { return index >= 0 && simulation.links[index].src == from && simulation.links[index].dst == to; };
  return is(bottleneck.index) || is(bottleneck.reverse);
}

// Whether a message from one worker to another uses it: a kLink or a kShared.
bool Crosses(const Bottleneck& bottleneck, const Simulation& simulation, const Channel& channel, int from, int to) {
  if (bottleneck.kind == Bottleneck::Kind::kLink) return Concerns(bottleneck, simulation, from, to);
  if (bottleneck.kind != Bottleneck::Kind::kShared) return false;
  return std::any_of(channel.shared_links.begin(), channel.shared_links.end(), [&](const LinkOccupancy& use) {
    const auto is = [&](int index) { return index >= 0 && simulation.shared[index].shared_link == use.shared_link; };
    return is(bottleneck.index) || is(bottleneck.reverse);
  });
}

void SpeedUpChannel(Channel& channel, int from, int to, const Simulation& simulation, const Bottleneck& bottleneck) {
  if (bottleneck.kind == Bottleneck::Kind::kShared) {
    SpeedUpSharedLink(channel, simulation.shared[bottleneck.index].shared_link, kLess);
    if (bottleneck.reverse >= 0) SpeedUpSharedLink(channel, simulation.shared[bottleneck.reverse].shared_link, kLess);
    return;
  }
  if (!Concerns(bottleneck, simulation, from, to)) return;
  if (bottleneck.kind == Bottleneck::Kind::kLatency) {
    channel.latency_s *= kLess;
  } else {
    for (LinkOccupancy& use : channel.shared_links) use.hold_s *= kLess;
  }
}

void SpeedUp(PipelineInput& input, const Simulation& simulation, const Bottleneck& bottleneck) {
  if (SpeedUpEnd(input, bottleneck)) return;
  if (bottleneck.kind == Bottleneck::Kind::kStage) {
    for (size_t s = bottleneck.index; s < input.stages.size(); s += input.workers()) {
      StageTiming& timing = input.stages[s];
      for (double* seconds : {&timing.forward_s, &timing.backward_s, &timing.weights_s, &timing.update_s}) *seconds *= kLess;
    }
    return;
  }
  for (StageLink& link : input.links) {
    const int src = link.src % input.workers(), dst = link.dst % input.workers();
    if (link.forward.used) SpeedUpChannel(link.forward, src, dst, simulation, bottleneck);
    if (link.backward.used) SpeedUpChannel(link.backward, dst, src, simulation, bottleneck);
  }
  for (TiedMessage& tied : input.tied) SpeedUpChannel(tied.channel, tied.from, tied.to, simulation, bottleneck);
  if (bottleneck.kind != Bottleneck::Kind::kLatency) return;
  for (auto* messages : {&input.reports, &input.decisions}) {
    for (StepEndMessage& message : *messages) {
      if (Concerns(bottleneck, simulation, message.from, message.to)) message.seconds -= kProbedSpeedUp * message.latency_s;
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
  for (const StepEndMessage& message : input.reports) report_s = std::max(report_s, message.seconds);
  for (const StepEndMessage& message : input.decisions) decision_s = std::max(decision_s, message.seconds);
  return report_s + decision_s;
}

// "link:tokyo->paris" of "link:paris->tokyo", "port:h0:in" of "port:h0:out"; empty: it has no directions.
std::string OtherDirection(const std::string& name) {
  const std::string link = "link:", arrow = "->";
  if (const size_t at = name.find(arrow); name.starts_with(link) && at != std::string::npos) {
    return absl::StrCat(link, name.substr(at + arrow.size()), arrow, name.substr(link.size(), at - link.size()));
  }
  if (name.ends_with(":out")) return absl::StrCat(name.substr(0, name.size() - 4), ":in");
  return name.ends_with(":in") ? absl::StrCat(name.substr(0, name.size() - 3), ":out") : "";
}

// Of the one direction, both: "link:paris<->tokyo", "port:h0".
std::string BothDirections(const std::string& name) {
  if (name.ends_with(":out")) return name.substr(0, name.size() - 4);
  if (name.ends_with(":in")) return name.substr(0, name.size() - 3);
  std::string both = name;
  both.replace(name.find("->"), 2, "<->");
  return both;
}

// Adds a bottleneck for each of `ratios` that is above 0, `reverse_of` whose other direction is above 0 too together with it.
template <typename ReverseOf>
void AddBothDirections(Bottleneck::Kind kind, const std::vector<double>& ratios, const ReverseOf& reverse_of, int max_per_kind,
                       std::vector<Bottleneck>& bottlenecks) {
  std::set<int> added;
  int count = 0;
  for (const int i : Largest(ratios, 2 * max_per_kind)) {
    if (count == max_per_kind) break;
    if (!added.insert(i).second) continue;
    ++count;
    Bottleneck bottleneck{.kind = kind, .index = i, .busy_ratio = ratios[i]};
    if (const int reverse = reverse_of(i); reverse >= 0 && ratios[reverse] > 0) {
      added.insert(reverse);
      bottleneck.reverse = reverse;
      bottleneck.reverse_busy_ratio = ratios[reverse];
    }
    bottlenecks.push_back(bottleneck);
  }
}

// Where one of two directions brings nearly all of the gain, that one is the bottleneck.
template <typename GainOf>
void KeepTheDirectionThatCounts(Bottleneck& bottleneck, const GainOf& gain_of) {
  constexpr double kNearlyAll = 0.9;
  // Less than that is no bottleneck, whatever the direction.
  constexpr double kMinGain = 0.002;
  if (bottleneck.reverse < 0 || bottleneck.gain < kMinGain) return;
  const std::pair<int, double> directions[] = {{bottleneck.index, bottleneck.busy_ratio},
                                               {bottleneck.reverse, bottleneck.reverse_busy_ratio}};
  for (const auto& [index, busy_ratio] : directions) {
    Bottleneck one{.kind = bottleneck.kind, .index = index, .busy_ratio = busy_ratio};
    one.gain = gain_of(one);
    if (one.gain < kNearlyAll * bottleneck.gain) continue;
    bottleneck = one;
    return;
  }
}

// Tied gradients that are most of what a shared link costs are what limits the step; the shared link is where.
void PutCausesFirst(std::vector<Bottleneck>& bottlenecks) {
  constexpr double kMinTiedShare = 0.75;
  if (bottlenecks.empty()) return;
  const Bottleneck::Kind first = bottlenecks[0].kind;
  if (first != Bottleneck::Kind::kLink && first != Bottleneck::Kind::kShared) return;
  const auto tied = std::find_if(bottlenecks.begin(), bottlenecks.end(),
                                 [](const Bottleneck& bottleneck) { return bottleneck.kind == Bottleneck::Kind::kTied; });
  if (tied != bottlenecks.end() && tied->gain >= kMinTiedShare * bottlenecks[0].gain) std::rotate(bottlenecks.begin(), tied, tied + 1);
}

}  // namespace

std::vector<Bottleneck> FindBottlenecks(const PipelineInput& input, const Simulation& simulation, int max_per_kind,
                                        const StopFunction& stop) {
  std::vector<Bottleneck> bottlenecks;
  const auto add = [&](Bottleneck::Kind kind, const std::vector<double>& ratios) {
    for (const int i : Largest(ratios, max_per_kind)) bottlenecks.push_back({.kind = kind, .index = i, .busy_ratio = ratios[i]});
  };
  if (!(simulation.step_s > 0)) return bottlenecks;
  std::vector<double> stages, links, tied_of_links, latencies, shared, tied = ExchangeSeconds(input);
  for (const StageUsage& use : simulation.stages) stages.push_back(use.busy_s() / simulation.step_s);
  // Of a direction the first use stands for all.
  size_t first = 0;
  std::map<std::pair<int, int>, int> first_of;
  for (size_t l = 0; l < simulation.links.size(); ++l) {
    const LinkUsage& use = simulation.links[l];
    links.push_back(0);
    tied_of_links.push_back(0);
    latencies.push_back(0);
    if (use.src != simulation.links[first].src || use.dst != simulation.links[first].dst) first = l;
    first_of[{use.src, use.dst}] = static_cast<int>(first);
    if (use.kind == LinkUsage::Kind::kNorm) continue;
    links[first] += use.busy_s / simulation.step_s;
    if (use.kind == LinkUsage::Kind::kTied) tied_of_links[first] += use.busy_s / simulation.step_s;
    latencies[first] = use.latency_s / simulation.step_s;
  }
  const auto reverse_link = [&](int link) {
    const LinkUsage& use = simulation.links[link];
    const auto found = first_of.find({use.dst, use.src});
    return found == first_of.end() ? -1 : found->second;
  };
  for (double& seconds : tied) seconds /= simulation.step_s;
  double update_s = 0;
  for (const StageUsage& use : simulation.stages) update_s = std::max(update_s, use.update_s);
  // A shared link that only one link passes says nothing that the link does not.
  for (const SharedLinkUsage& use : simulation.shared) shared.push_back(use.pairs > 1 ? use.busy_s / simulation.step_s : 0);
  const auto reverse_shared_link = [&](int shared_link) {
    const std::string other = OtherDirection(simulation.shared[shared_link].name);
    for (size_t w = 0; w < simulation.shared.size(); ++w) {
      if (!other.empty() && simulation.shared[w].name == other) return static_cast<int>(w);
    }
    return -1;
  };
  add(Bottleneck::Kind::kStage, stages);
  AddBothDirections(Bottleneck::Kind::kLink, links, reverse_link, max_per_kind, bottlenecks);
  AddBothDirections(Bottleneck::Kind::kShared, shared, reverse_shared_link, max_per_kind, bottlenecks);
  AddBothDirections(Bottleneck::Kind::kLatency, latencies, reverse_link, max_per_kind, bottlenecks);
  add(Bottleneck::Kind::kTied, tied);
  add(Bottleneck::Kind::kNorm, {NormSeconds(input) / simulation.step_s});
  add(Bottleneck::Kind::kUpdate, {update_s / simulation.step_s});
  PipelineSimulator simulator;
  const double step_s = simulator.Run(input).step_s;
  const auto gain_of = [&](const Bottleneck& bottleneck) {
    PipelineInput faster = input;
    SpeedUp(faster, simulation, bottleneck);
    return 1 - simulator.Run(faster).step_s / step_s;
  };
  for (Bottleneck& bottleneck : bottlenecks) {
    if (stop != nullptr && stop()) break;
    bottleneck.gain = gain_of(bottleneck);
    KeepTheDirectionThatCounts(bottleneck, gain_of);
    if (bottleneck.kind == Bottleneck::Kind::kLink) bottleneck.tied_ratio = tied_of_links[bottleneck.index];
  }
  std::stable_sort(bottlenecks.begin(), bottlenecks.end(), [](const Bottleneck& a, const Bottleneck& b) { return a.gain > b.gain; });
  PutCausesFirst(bottlenecks);
  return bottlenecks;
}

std::string NameOf(const Bottleneck& bottleneck, const Simulation& simulation, const std::vector<std::string>& devices,
                   const std::vector<std::string>& tied) {
  switch (bottleneck.kind) {
    case Bottleneck::Kind::kStage:
      return absl::StrFormat("stage %d on %s", bottleneck.index, devices[bottleneck.index]);
    case Bottleneck::Kind::kShared: {
      const std::string& name = simulation.shared[bottleneck.index].name;
      if (bottleneck.reverse < 0) return name;
      return BothDirections(std::min(name, simulation.shared[bottleneck.reverse].name));  // the same whichever is busier
    }
    case Bottleneck::Kind::kTied:
      return absl::StrCat("the tied gradients of ", tied[bottleneck.index]);
    case Bottleneck::Kind::kNorm:
      return "the reports of all stages to stage 0 and its answer with the global norm";
    case Bottleneck::Kind::kUpdate:
      return "the optimizer's update";
    default:
      break;
  }
  // Of two directions the one from the earlier stage is named first.
  const LinkUsage& use = simulation.links[bottleneck.index];
  const bool both = bottleneck.reverse >= 0;
  const int from = both ? std::min(use.src, use.dst) : use.src, to = both ? std::max(use.src, use.dst) : use.dst;
  std::vector<std::string> carried;
  for (const LinkUsage::Kind kind : {LinkUsage::Kind::kActivations, LinkUsage::Kind::kGradients, LinkUsage::Kind::kTied}) {
    const bool is_carried = std::any_of(simulation.links.begin(), simulation.links.end(), [&](const LinkUsage& other) {
      return other.kind == kind && Concerns(bottleneck, simulation, other.src, other.dst);
    });
    if (is_carried) carried.emplace_back(Name(kind));
  }
  return absl::StrFormat("%s %s %s (%s)", devices[from], both ? "<->" : "->", devices[to], absl::StrJoin(carried, ", "));
}

bool SamePlace(const Bottleneck& a, const Bottleneck& b, const PipelineInput& input, const Simulation& simulation) {
  if (a.kind == b.kind) return false;
  const auto crosses_same = [&](const Channel& channel, int from, int to) {
    return Crosses(a, simulation, channel, from, to) && Crosses(b, simulation, channel, from, to);
  };
  for (const StageLink& link : input.links) {
    const int src = link.src % input.workers(), dst = link.dst % input.workers();
    if (link.forward.used && crosses_same(link.forward, src, dst)) return true;
    if (link.backward.used && crosses_same(link.backward, dst, src)) return true;
  }
  return std::any_of(input.tied.begin(), input.tied.end(), [&](const TiedMessage& tied) {
    const auto concerned = [&](const Bottleneck& bottleneck) {
      return bottleneck.kind == Bottleneck::Kind::kTied ? bottleneck.index == tied.exchange
                                                        : Crosses(bottleneck, simulation, tied.channel, tied.from, tied.to);
    };
    return concerned(a) && concerned(b);
  });
}

}  // namespace fusionllm::scheduler
