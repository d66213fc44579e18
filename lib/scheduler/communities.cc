#include "lib/scheduler/communities.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace fusionllm::scheduler {
namespace {

constexpr size_t kMaxResolutions = 4;
constexpr size_t kAllOrdersBelow = 4;  // devices: 24 orders
// Two merges whose crossing times differ by less belong to the same kind of link.
constexpr double kSameKind = 1.3;

class Distances {
 public:
  explicit Distances(const Problem& problem) : devices_(problem.usable()), problem_(problem) {
    std::vector<int64_t> alive;
    for (int p = problem.first_cut(); p < problem.positions(); ++p) alive.push_back(problem.LossyBytesAt(p) + problem.LosslessBytesAt(p));
    if (!alive.empty()) {
      std::nth_element(alive.begin(), alive.begin() + alive.size() / 2, alive.end());
      typical_bytes_ = static_cast<double>(alive[alive.size() / 2]);
    }
  }
  size_t size() const { return devices_.size(); }
  int device(size_t i) const { return devices_[i]; }
  double operator()(size_t a, size_t b) const {
    const auto one_way = [&](const DirectedLink& link) {
      return link.bytes_per_s > 0 ? link.latency_s + typical_bytes_ / link.bytes_per_s : std::numeric_limits<double>::infinity();
    };
    return std::max(one_way(problem_.link(devices_[a], devices_[b])), one_way(problem_.link(devices_[b], devices_[a])));
  }
  // Seconds of the whole model: less is faster.
  double Slowness(size_t i) const {
    return problem_.ForwardSeconds(0, problem_.positions(), devices_[i]) + problem_.BackwardSeconds(0, problem_.positions(), devices_[i]);
  }

 private:
  const std::vector<int>& devices_;
  const Problem& problem_;
  double typical_bytes_ = 1;
};

struct Merge {
  double distance;
  size_t a, b;
};

// Prim's minimum spanning tree: its edges in ascending order are the merges of single linkage.
std::vector<Merge> SpanningTree(const Distances& distance) {
  const size_t n = distance.size();
  std::vector<double> nearest(n, std::numeric_limits<double>::infinity());
  std::vector<size_t> parent(n, 0);
  std::vector<char> in_tree(n, 0);
  std::vector<Merge> merges;
  size_t current = 0;
  in_tree[0] = 1;
  for (size_t step = 1; step < n; ++step) {
    size_t next = n;
    for (size_t i = 0; i < n; ++i) {
      if (in_tree[i]) continue;
      const double d = distance(current, i);
      if (d < nearest[i]) {
        nearest[i] = d;
        parent[i] = current;
      }
      if (next == n || nearest[i] < nearest[next]) next = i;
    }
    in_tree[next] = 1;
    merges.push_back({nearest[next], parent[next], next});
    current = next;
  }
  std::stable_sort(merges.begin(), merges.end(), [](const Merge& a, const Merge& b) { return a.distance < b.distance; });
  return merges;
}

// Groups (as indices into usable devices) that the first `count` merges make, each ascending, ordered by their first member.
std::vector<std::vector<size_t>> GroupsAfter(const std::vector<Merge>& merges, size_t count, size_t n) {
  std::vector<size_t> root(n);
  std::iota(root.begin(), root.end(), size_t{0});
  const auto find = [&](size_t i) {
    while (root[i] != i) i = root[i] = root[root[i]];
    return i;
  };
  for (size_t m = 0; m < count; ++m) {
    const size_t a = find(merges[m].a), b = find(merges[m].b);
    root[std::max(a, b)] = std::min(a, b);
  }
  std::vector<std::vector<size_t>> groups;
  std::vector<size_t> group_of(n, n);
  for (size_t i = 0; i < n; ++i) {
    const size_t r = find(i);
    if (group_of[r] == n) {
      group_of[r] = groups.size();
      groups.emplace_back();
    }
    groups[group_of[r]].push_back(i);
  }
  return groups;
}

std::vector<std::vector<std::vector<size_t>>> Resolutions(const Distances& distance) {
  const size_t n = distance.size();
  std::vector<std::vector<std::vector<size_t>>> resolutions;
  if (n == 0) return resolutions;
  const std::vector<Merge> merges = SpanningTree(distance);
  resolutions.push_back(GroupsAfter(merges, merges.size(), n));
  std::vector<std::pair<double, size_t>> jumps;  // (ratio, merges before it)
  for (size_t m = 1; m < merges.size(); ++m) {
    const double ratio = merges[m].distance / std::max(merges[m - 1].distance, 1e-12);
    if (ratio > kSameKind) jumps.push_back({ratio, m});
  }
  std::stable_sort(jumps.begin(), jumps.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  if (jumps.size() > kMaxResolutions - 1) jumps.resize(kMaxResolutions - 1);
  std::sort(jumps.begin(), jumps.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  for (const auto& [ratio, count] : jumps) resolutions.push_back(GroupsAfter(merges, count, n));
  return resolutions;
}

double Nearest(const Distances& distance, const std::vector<size_t>& a, const std::vector<size_t>& b) {
  double least = std::numeric_limits<double>::infinity();
  for (size_t i : a) {
    for (size_t j : b) least = std::min(least, distance(i, j));
  }
  return least;
}

// Greedy walk: always to the nearest group not yet visited.
std::vector<size_t> WalkFrom(size_t start, const std::vector<std::vector<double>>& between) {
  std::vector<size_t> walk = {start};
  std::vector<char> visited(between.size(), 0);
  visited[start] = 1;
  while (walk.size() < between.size()) {
    size_t next = between.size();
    for (size_t g = 0; g < between.size(); ++g) {
      if (!visited[g] && (next == between.size() || between[walk.back()][g] < between[walk.back()][next])) next = g;
    }
    visited[next] = 1;
    walk.push_back(next);
  }
  return walk;
}

}  // namespace

std::vector<std::vector<std::vector<int>>> Communities(const Problem& problem) {
  const Distances distance(problem);
  std::vector<std::vector<std::vector<int>>> result;
  for (const auto& groups : Resolutions(distance)) {
    result.emplace_back();
    for (const auto& group : groups) {
      result.back().emplace_back();
      for (size_t i : group) result.back().back().push_back(distance.device(i));
    }
  }
  return result;
}

std::vector<std::vector<int>> CandidateOrders(const Problem& problem, size_t limit) {
  const Distances distance(problem);
  const size_t n = distance.size();
  std::vector<std::vector<int>> orders;
  const auto add = [&](const std::vector<size_t>& indices) {
    std::vector<int> order;
    for (size_t i : indices) order.push_back(distance.device(i));
    if (orders.size() < limit && std::find(orders.begin(), orders.end(), order) == orders.end()) orders.push_back(std::move(order));
  };
  std::vector<size_t> declared(n);
  std::iota(declared.begin(), declared.end(), size_t{0});
  add(declared);
  if (n <= kAllOrdersBelow) {
    for (std::vector<size_t> order = declared; std::next_permutation(order.begin(), order.end());) add(order);
    return orders;
  }
  std::vector<double> slowness(n);
  for (size_t i = 0; i < n; ++i) slowness[i] = distance.Slowness(i);
  for (const auto& groups : Resolutions(distance)) {
    std::vector<std::vector<double>> between(groups.size(), std::vector<double>(groups.size(), 0));
    for (size_t a = 0; a < groups.size(); ++a) {
      for (size_t b = 0; b < a; ++b) between[a][b] = between[b][a] = Nearest(distance, groups[a], groups[b]);
    }
    for (size_t start = 0; start < groups.size() && orders.size() < limit; ++start) {
      const std::vector<size_t> walk = WalkFrom(start, between);
      for (bool slow_first : {false, true}) {
        std::vector<size_t> order;
        for (size_t g : walk) {
          std::vector<size_t> group = groups[g];
          std::stable_sort(group.begin(), group.end(),
                           [&](size_t a, size_t b) { return slow_first ? slowness[a] > slowness[b] : slowness[a] < slowness[b]; });
          order.insert(order.end(), group.begin(), group.end());
        }
        add(order);
      }
      std::vector<size_t> as_declared;
      for (size_t g : walk) as_declared.insert(as_declared.end(), groups[g].begin(), groups[g].end());
      add(as_declared);
    }
  }
  return orders;
}

}  // namespace fusionllm::scheduler
