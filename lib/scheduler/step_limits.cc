#include "lib/scheduler/step_limits.h"

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
      if (tied.channel.shared_links.empty()) tied.channel.latency_s *= kLess;  // by way of other stages
      for (LinkOccupancy& use : tied.channel.shared_links) use.hold_s *= kLess;
    }
  } else {
    return false;
  }
  return true;
}

// Whether it concerns what goes from one worker to another: of a kLink or kLatency.
bool Concerns(const Limit& limit, const Simulation& simulation, int from, int to) {
  const auto is = [&](int index) { return index >= 0 && simulation.links[index].src == from && simulation.links[index].dst == to; };
  return is(limit.index) || is(limit.reverse);
}

// Whether a message from one worker to another uses it: a kLink or a kShared.
bool Crosses(const Limit& limit, const Simulation& simulation, const Channel& channel, int from, int to) {
  if (limit.kind == Limit::Kind::kLink) return Concerns(limit, simulation, from, to);
  if (limit.kind != Limit::Kind::kShared) return false;
  return std::any_of(channel.shared_links.begin(), channel.shared_links.end(), [&](const LinkOccupancy& use) {
    const auto is = [&](int index) { return index >= 0 && simulation.shared[index].shared_link == use.shared_link; };
    return is(limit.index) || is(limit.reverse);
  });
}

void SpeedUpChannel(Channel& channel, int from, int to, const Simulation& simulation, const Limit& limit) {
  if (limit.kind == Limit::Kind::kShared) {
    SpeedUpSharedLink(channel, simulation.shared[limit.index].shared_link, kLess);
    if (limit.reverse >= 0) SpeedUpSharedLink(channel, simulation.shared[limit.reverse].shared_link, kLess);
    return;
  }
  if (!Concerns(limit, simulation, from, to)) return;
  if (limit.kind == Limit::Kind::kLatency) {
    channel.latency_s *= kLess;
  } else {
    for (LinkOccupancy& use : channel.shared_links) use.hold_s *= kLess;
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
  for (auto* messages : {&input.reports, &input.decisions}) {
    for (EndMessage& message : *messages) {
      if (Concerns(limit, simulation, message.from, message.to)) message.seconds -= kProbe * message.latency_s;
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

// Adds a limit for each of `ratios` that is above 0, `reverse_of` whose other direction is above 0 too together with it.
template <typename ReverseOf>
void AddBothDirections(Limit::Kind kind, const std::vector<double>& ratios, const ReverseOf& reverse_of, int most,
                       std::vector<Limit>& limits) {
  std::set<int> added;
  int count = 0;
  for (const int i : Largest(ratios, 2 * most)) {
    if (count == most) break;
    if (!added.insert(i).second) continue;
    ++count;
    Limit limit{.kind = kind, .index = i, .busy_ratio = ratios[i]};
    if (const int reverse = reverse_of(i); reverse >= 0 && ratios[reverse] > 0) {
      added.insert(reverse);
      limit.reverse = reverse;
      limit.reverse_busy_ratio = ratios[reverse];
    }
    limits.push_back(limit);
  }
}

// Where one of two directions brings nearly all of the gain, that one is the limit.
template <typename GainOf>
void KeepTheDirectionThatCounts(Limit& limit, const GainOf& gain_of) {
  constexpr double kNearlyAll = 0.9;
  // Less than that is no limit, whatever the direction.
  constexpr double kMinGain = 0.002;
  if (limit.reverse < 0 || limit.gain < kMinGain) return;
  const std::pair<int, double> directions[] = {{limit.index, limit.busy_ratio}, {limit.reverse, limit.reverse_busy_ratio}};
  for (const auto& [index, busy_ratio] : directions) {
    Limit one{.kind = limit.kind, .index = index, .busy_ratio = busy_ratio};
    one.gain = gain_of(one);
    if (one.gain < kNearlyAll * limit.gain) continue;
    limit = one;
    return;
  }
}

// Tied gradients that are most of what a shared link costs are what limits the step; the shared link is where.
void PutCausesFirst(std::vector<Limit>& limits) {
  constexpr double kMinTiedShare = 0.75;
  if (limits.empty()) return;
  const Limit::Kind first = limits[0].kind;
  if (first != Limit::Kind::kLink && first != Limit::Kind::kShared) return;
  const auto tied = std::find_if(limits.begin(), limits.end(), [](const Limit& limit) { return limit.kind == Limit::Kind::kTied; });
  if (tied != limits.end() && tied->gain >= kMinTiedShare * limits[0].gain) std::rotate(limits.begin(), tied, tied + 1);
}

}  // namespace

std::vector<Limit> FindLimits(const PipelineInput& input, const Simulation& simulation, int most, const StopFunction& stop) {
  std::vector<Limit> limits;
  const auto add = [&](Limit::Kind kind, const std::vector<double>& ratios) {
    for (const int i : Largest(ratios, most)) limits.push_back({.kind = kind, .index = i, .busy_ratio = ratios[i]});
  };
  if (!(simulation.step_s > 0)) return limits;
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
  const auto reverse_link = [&](int shared_link) {
    const std::string other = OtherDirection(simulation.shared[shared_link].name);
    for (size_t w = 0; w < simulation.shared.size(); ++w) {
      if (!other.empty() && simulation.shared[w].name == other) return static_cast<int>(w);
    }
    return -1;
  };
  add(Limit::Kind::kStage, stages);
  AddBothDirections(Limit::Kind::kLink, links, reverse_link, most, limits);
  AddBothDirections(Limit::Kind::kShared, shared, reverse_link, most, limits);
  AddBothDirections(Limit::Kind::kLatency, latencies, reverse_link, most, limits);
  add(Limit::Kind::kTied, tied);
  add(Limit::Kind::kNorm, {NormSeconds(input) / simulation.step_s});
  add(Limit::Kind::kUpdate, {update_s / simulation.step_s});
  PipelineSimulator simulator;
  const double step_s = simulator.Run(input).step_s;
  const auto gain_of = [&](const Limit& limit) {
    PipelineInput faster = input;
    SpeedUp(faster, simulation, limit);
    return 1 - simulator.Run(faster).step_s / step_s;
  };
  for (Limit& limit : limits) {
    if (stop != nullptr && stop()) break;
    limit.gain = gain_of(limit);
    KeepTheDirectionThatCounts(limit, gain_of);
    if (limit.kind == Limit::Kind::kLink) limit.tied_ratio = tied_of_links[limit.index];
  }
  std::stable_sort(limits.begin(), limits.end(), [](const Limit& a, const Limit& b) { return a.gain > b.gain; });
  PutCausesFirst(limits);
  return limits;
}

std::string NameOf(const Limit& limit, const Simulation& simulation, const std::vector<std::string>& devices,
                   const std::vector<std::string>& tied) {
  switch (limit.kind) {
    case Limit::Kind::kStage:
      return absl::StrFormat("stage %d on %s", limit.index, devices[limit.index]);
    case Limit::Kind::kShared: {
      const std::string& name = simulation.shared[limit.index].name;
      if (limit.reverse < 0) return name;
      return BothDirections(std::min(name, simulation.shared[limit.reverse].name));  // the same whichever is busier
    }
    case Limit::Kind::kTied:
      return absl::StrCat("the tied gradients of ", tied[limit.index]);
    case Limit::Kind::kNorm:
      return "the reports of all stages to stage 0 and its answer with the global norm";
    case Limit::Kind::kUpdate:
      return "the optimizer's update";
    default:
      break;
  }
  // Of two directions the one from the earlier stage is named first.
  const LinkUsage& use = simulation.links[limit.index];
  const bool both = limit.reverse >= 0;
  const int from = both ? std::min(use.src, use.dst) : use.src, to = both ? std::max(use.src, use.dst) : use.dst;
  std::vector<std::string> carried;
  for (const LinkUsage::Kind kind : {LinkUsage::Kind::kActivations, LinkUsage::Kind::kGradients, LinkUsage::Kind::kTied}) {
    const bool is_carried = std::any_of(simulation.links.begin(), simulation.links.end(), [&](const LinkUsage& other) {
      return other.kind == kind && Concerns(limit, simulation, other.src, other.dst);
    });
    if (is_carried) carried.emplace_back(Name(kind));
  }
  return absl::StrFormat("%s %s %s (%s)", devices[from], both ? "<->" : "->", devices[to], absl::StrJoin(carried, ", "));
}

bool SamePlace(const Limit& a, const Limit& b, const PipelineInput& input, const Simulation& simulation) {
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
    const auto concerned = [&](const Limit& limit) {
      return limit.kind == Limit::Kind::kTied ? limit.index == tied.exchange : Crosses(limit, simulation, tied.channel, tied.from, tied.to);
    };
    return concerned(a) && concerned(b);
  });
}

}  // namespace fusionllm::scheduler
