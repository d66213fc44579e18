#include "lib/scheduler/bounds.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "lib/base/pluralize.h"
#include "lib/scheduler/op_order.h"
#include "lib/scheduler/text_format.h"

namespace fusionllm::scheduler {
namespace {

// Sums in another order than the simulator's may differ in the last bits; a bound must not exceed the truth for that.
constexpr double kRounding = 1 - 1e-9;
constexpr size_t kMaxPairwiseDevices = 2'048;  // devices whose links are looked at pair by pair

// By device kind: usable devices of the same cost class differ only by their scale, so only the fastest of a class can be the minimum.
std::vector<int> FastestOfEachClass(const Problem& problem) {
  std::vector<int> fastest;
  for (int device : problem.usable()) {
    const Device& d = problem.request().devices[device];
    const auto same =
        std::find_if(fastest.begin(), fastest.end(), [&](int f) { return problem.request().devices[f].cost_class == d.cost_class; });
    if (same == fastest.end()) {
      fastest.push_back(device);
    } else if (d.time_scale < problem.request().devices[*same].time_scale) {
      *same = device;
    }
  }
  return fastest;
}

// For any weights w >= 0, max load >= sum(w load) / sum(w) >= sum over ops of min(w t) / sum(w). With w = 1 / (time of the whole model)
// this is work / speed for devices that differ by a factor. min(w t) depends on the class alone: the scale cancels.
// `updates`: how much of the optimizer's update counts for a micro-batch.
double BalancedSeconds(const Problem& problem, const std::vector<int>& kinds, double updates) {
  const int n = problem.positions();
  const auto whole = [&](int device) { return problem.ForwardSeconds(0, n, device) + problem.BackwardSeconds(0, n, device); };
  std::vector<double> speeds;
  for (int device : problem.usable()) {
    if (whole(device) <= 0) return 0;
    speeds.push_back(1 / whole(device));
  }
  std::sort(speeds.rbegin(), speeds.rend());
  double speed = 0;
  for (int k = 0; k < problem.max_stages(); ++k) speed += speeds[k];
  double work = 0;
  for (int p = 0; p < n; ++p) {
    double least = std::numeric_limits<double>::infinity();
    for (int device : kinds) {
      const double update_s = updates * problem.UpdateSeconds(p, p + 1, device);
      least = std::min(least,
                       (problem.ForwardSeconds(p, p + 1, device) + problem.BackwardSeconds(p, p + 1, device) + update_s) / whole(device));
    }
    work += least;
  }
  return work / speed;
}

struct SlowestOp {
  int position = 0, device = 0;
  double seconds = 0;
};

double BothSeconds(const Problem& problem, int position, int device) {
  return problem.ForwardSeconds(position, position + 1, device) + problem.BackwardSeconds(position, position + 1, device);
}

int FastestFor(const Problem& problem, const std::vector<int>& kinds, int position, double updates = 0) {
  const auto seconds = [&](int device) {
    return BothSeconds(problem, position, device) + updates * problem.UpdateSeconds(position, position + 1, device);
  };
  return *std::min_element(kinds.begin(), kinds.end(), [&](int a, int b) { return seconds(a) < seconds(b); });
}

SlowestOp LargestOp(const Problem& problem, const std::vector<int>& kinds, double updates) {
  SlowestOp largest{.device = kinds.front()};
  for (int p = 0; p < problem.positions(); ++p) {
    const int device = FastestFor(problem, kinds, p, updates);
    const double seconds = BothSeconds(problem, p, device) + updates * problem.UpdateSeconds(p, p + 1, device);
    if (seconds > largest.seconds) largest = {p, device, seconds};
  }
  return largest;
}

// Backward runs the same path in reverse only over differentiable values: a path counts as far as gradients flow.
double LongestPathSeconds(const Problem& problem, const std::vector<int>& kinds) {
  const int n = problem.positions();
  std::vector<double> path_s(n, 0);
  std::vector<std::vector<int>> inputs(n);
  for (const ChainValue& value : problem.values()) {
    if (!value.differentiable) continue;
    for (int consumer : value.consumers) inputs[consumer].push_back(value.producer);
  }
  double longest_s = 0;
  for (int p = 0; p < n; ++p) {
    for (int producer : inputs[p]) path_s[p] = std::max(path_s[p], path_s[producer]);
    path_s[p] += BothSeconds(problem, p, FastestFor(problem, kinds, p));
    longest_s = std::max(longest_s, path_s[p]);
  }
  return longest_s;
}

class Components {
 public:
  explicit Components(int count) : parent_(count) { std::iota(parent_.begin(), parent_.end(), 0); }
  bool Join(int a, int b) {
    a = Root(a), b = Root(b);
    parent_[a] = b;
    return a != b;
  }

 private:
  int Root(int a) {
    while (parent_[a] != a) a = parent_[a] = parent_[parent_[a]];
    return a;
  }
  std::vector<int> parent_;
};

// How links bound a step. Take the ops as a graph whose edges are the tensors between them, weighted with the fewest bytes that a codec
// leaves of one, and its maximum spanning tree with edges w_0 <= w_1 <= ...: tensors of w_j bytes and more leave at most j + 1 groups of
// ops unjoined. A plan of k stages, each with an op of its own, therefore sends w_(k-2) bytes or more from some stage to another, for each
// micro-batch. Take likewise the devices with the rates of their links, and the spanning tree of greatest rates r_0 <= r_1 <= ...: links
// faster than r_j leave at least j + 2 groups of devices unjoined. When every device has a stage, joining them by tensors of w_j and more
// thus needs a link of rate r_j at most, for every j.

// w_0, w_1, ...: the edges of the ops' spanning tree, ascending. A graph that does not hang together: noughts first.
std::vector<double> MinBytesOfCuts(const Problem& problem) {
  struct Edge {
    double bytes;
    int a, b;
  };
  // Placeholders have no stage of their own: they count as one with the first op that has one.
  const int first = problem.first_cut() - 1;
  std::vector<Edge> edges;
  for (const ChainValue& value : problem.values()) {
    const bool lossy = value.differentiable && !value.lossless_only;
    const double bytes = static_cast<double>(value.wire_bytes) / (lossy ? problem.max_direction_ratio() : 1);
    for (int consumer : value.consumers) edges.push_back({bytes, std::max(first, value.producer), std::max(first, consumer)});
  }
  std::stable_sort(edges.begin(), edges.end(), [](const Edge& a, const Edge& b) { return a.bytes > b.bytes; });
  Components groups(problem.positions());
  std::vector<double> tree;
  for (const Edge& edge : edges) {
    if (groups.Join(edge.a, edge.b)) tree.push_back(edge.bytes);
  }
  tree.resize(std::max(0, problem.positions() - 1 - first), 0);
  std::reverse(tree.begin(), tree.end());
  return tree;
}

// Of a pair, whichever way is faster.
double RateOf(const Problem& problem, int a, int b) { return std::max(problem.link(a, b).bytes_per_s, problem.link(b, a).bytes_per_s); }

double FastestRate(const Problem& problem) {
  const std::vector<int>& usable = problem.usable();
  double fastest = 0;
  if (usable.size() > kMaxPairwiseDevices) {  // no pair is faster than the rule it follows
    for (const Link& link : problem.request().links) fastest = std::max(fastest, link.bytes_per_s);
    for (const SiteLink& link : problem.request().site_links) fastest = std::max(fastest, link.bytes_per_s);
    return fastest;
  }
  for (size_t a = 0; a < usable.size(); ++a) {
    for (size_t b = 0; b < a; ++b) fastest = std::max(fastest, RateOf(problem, usable[a], usable[b]));
  }
  return fastest;
}

// r_0, r_1, ...: the edges of the devices' spanning tree (Prim), ascending.
std::vector<double> RatesOfSpanningTree(const Problem& problem) {
  const std::vector<int>& usable = problem.usable();
  std::vector<double> reach(usable.size(), -1), tree;
  std::vector<char> in(usable.size(), 0);
  size_t newest = 0;
  for (size_t joined = 1; joined < usable.size(); ++joined) {
    in[newest] = 1;
    size_t next = 0;
    for (size_t d = 0; d < usable.size(); ++d) {
      if (in[d]) continue;
      reach[d] = std::max(reach[d], RateOf(problem, usable[newest], usable[d]));
      if (in[next] || reach[d] > reach[next]) next = d;
    }
    tree.push_back(reach[next]);
    newest = next;
  }
  std::sort(tree.begin(), tree.end());
  return tree;
}

// That any plan has: as many as were asked for, and as many as it takes until the largest devices together have what the job needs with
// one micro-batch in flight. What stages need adds up to that or more (Problem::StandaloneBytes), as a refusal for memory says, too. Memory
// that was lowered for a search proves nothing.
int FewestStages(const Problem& problem) {
  const int asked = problem.min_stages(), most = std::max(1, problem.positions() - problem.first_cut() + 1);
  const PlanRequest& request = problem.request();
  // Memory that was lowered for a search proves nothing, nor does that of one way where recomputation is a choice.
  if (request.memory_is_lowered || request.recompute_is_a_choice) return asked;
  std::vector<int64_t> memories;
  for (const int device : problem.usable()) memories.push_back(problem.UsableMemory(device));
  std::sort(memories.rbegin(), memories.rend());
  const int64_t whole = problem.StandaloneBytes(0, problem.positions());
  int64_t together = 0;
  int stages = 0;
  while (stages < static_cast<int>(memories.size()) && together < whole) together += memories[stages++];
  if (request.recompute) stages = std::min(stages, 2);  // blocks that are cut may take less together
  return together < whole ? asked : std::min(most, std::max(asked, stages));
}

LowerBound CutBytes(const Problem& problem, int stages, const std::vector<double>& min_bytes) {
  LowerBound bound{.name = "cut-bytes"};
  if (stages < 2) {
    bound.why = "its memory does not rule out that one device runs the job alone, and then nothing need be sent";
    return bound;
  }
  const double bytes = min_bytes[stages - 2], rate = FastestRate(problem);
  bound.holds = true;
  bound.seconds = rate > 0 ? problem.request().micro_batches * bytes / rate : 0;
  bound.why = absl::StrFormat(
      "%s at least%s: between two of them each of %s sends %s or more, over %s/s at most", base::Pluralize(stages, "stage"),
      stages > problem.min_stages()
          ? absl::StrCat(", since the job needs ", SizeText(static_cast<double>(problem.StandaloneBytes(0, problem.positions()))),
                         " with one micro-batch in flight")
          : "",
      base::Pluralize(problem.request().micro_batches, "micro-batch", "micro-batches"), SizeText(bytes), SizeText(rate));
  return bound;
}

LowerBound SpanningTree(const Problem& problem, const std::vector<double>& min_bytes) {
  LowerBound bound{.name = "spanning-tree"};
  const size_t devices = problem.usable().size();
  if (static_cast<size_t>(problem.min_stages()) < devices) {
    bound.why = "devices may be left out, the badly joined ones among them";
    return bound;
  }
  if (devices < 2 || devices > kMaxPairwiseDevices) {
    bound.why = devices < 2 ? "there is one device" : absl::StrFormat("not looked at beyond %d devices", kMaxPairwiseDevices);
    return bound;
  }
  const std::vector<double> rates = RatesOfSpanningTree(problem);
  double slowest_s = 0, bytes = 0, rate = rates.front();
  for (size_t j = 0; j < rates.size(); ++j) {
    if (rates[j] <= 0 || min_bytes[j] / rates[j] <= slowest_s) continue;
    bytes = min_bytes[j];
    rate = rates[j];
    slowest_s = bytes / rate;
  }
  bound.holds = true;
  bound.seconds = problem.request().micro_batches * slowest_s;
  bound.why = absl::StrFormat("all %d devices must be used: some link of %s/s or less carries %s or more of each of %d micro-batches",
                              devices, SizeText(rate), SizeText(bytes), problem.request().micro_batches);
  return bound;
}

}  // namespace

double MinBottleneckSeconds(const Problem& problem) {
  const std::vector<int> kinds = FastestOfEachClass(problem);
  return std::max(LargestOp(problem, kinds, 0).seconds, BalancedSeconds(problem, kinds, 0));
}

double LowerBoundSeconds(const Problem& problem) {
  const double bottleneck_s = MinBottleneckSeconds(problem);
  const double longest_s = LongestPathSeconds(problem, FastestOfEachClass(problem));
  return std::max(problem.request().micro_batches * bottleneck_s, longest_s) * kRounding + problem.request().step_overhead_s * kRounding;
}

std::vector<LowerBound> LowerBounds(const Problem& problem) {
  const PlanRequest& request = problem.request();
  if (request.recompute && request.recompute_is_a_choice) {
    PlanRequest without = request;
    without.recompute = false;
    const auto other = Problem::Create(without);
    if (other.ok() && std::holds_alternative<std::unique_ptr<Problem>>(*other)) {
      return LowerBounds(*std::get<std::unique_ptr<Problem>>(*other));
    }
  }
  const std::vector<int> kinds = FastestOfEachClass(problem);
  // A device that has run its passes still has to update.
  const double updates = 1.0 / request.micro_batches;
  const SlowestOp largest = LargestOp(problem, kinds, updates);
  std::vector<LowerBound> bounds = {
      {.name = "work",
       .seconds = request.micro_batches * BalancedSeconds(problem, kinds, updates),
       .holds = true,
       .why = absl::StrFormat("%s and the update shared out over the %s that may be used, none of them ever idle",
                              base::Pluralize(request.micro_batches, "micro-batch", "micro-batches"),
                              base::Pluralize(problem.max_stages(), "fastest device"))},
      {.name = "largest-op",
       .seconds = request.micro_batches * largest.seconds,
       .holds = true,
       .why = absl::StrFormat("one device runs op '%s' for all %s and updates it, %s for each on %s, which is fastest at it",
                              request.ops[problem.op_at(largest.position)].name,
                              base::Pluralize(request.micro_batches, "micro-batch", "micro-batches"), DurationText(largest.seconds),
                              request.devices[largest.device].name)},
      {.name = "longest-path",
       .seconds = LongestPathSeconds(problem, kinds),
       .holds = true,
       .why = "one micro-batch down the longest path of the graph and back, each op on the device that is fastest at it"}};
  const int stages = FewestStages(problem);
  const std::vector<double> min_bytes = stages > 1 ? MinBytesOfCuts(problem) : std::vector<double>();
  bounds.push_back(CutBytes(problem, stages, min_bytes));
  bounds.push_back(SpanningTree(problem, min_bytes));
  for (LowerBound& bound : bounds) {
    if (bound.holds) bound.seconds = (bound.seconds + request.step_overhead_s) * kRounding;
  }
  return bounds;
}

LowerBound SearchBound(const Problem& problem, double step_s) {
  const PlanRequest& request = problem.request();
  constexpr absl::string_view kTried = "every choice of devices, their order and the cuts was tried or ruled out";
  LowerBound bound{.name = "search"};
  if (problem.max_direction_ratio() > 1 && problem.max_stages() > 1) {
    bound.why = "the search was for the least time to an equal loss: a plan with codecs that lose more may have shorter steps";
  } else if (request.memory_is_lowered) {
    bound.why = absl::StrCat(kTried, " in less memory than there is, since a plan that was found before did not fit");
  } else if (request.recompute_is_a_choice) {
    bound.why = absl::StrCat(kTried, request.recompute ? " with" : " without", " recomputation, which the job leaves open");
  } else if (!IsOnlyOrder(request, problem.order())) {
    bound.why = absl::StrCat(kTried, " for one order of the graph's ops, which has others");
  } else {
    bound.holds = true;
    bound.seconds = step_s;
    bound.why = std::string(kTried);
  }
  return bound;
}

const LowerBound* BindingBound(const std::vector<LowerBound>& bounds) {
  const LowerBound* binding = nullptr;
  for (const LowerBound& bound : bounds) {
    if (bound.holds && (binding == nullptr || bound.seconds > binding->seconds)) binding = &bound;
  }
  return binding;
}

}  // namespace fusionllm::scheduler
