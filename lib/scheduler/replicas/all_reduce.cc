#include "lib/scheduler/replicas/all_reduce.h"

#include <algorithm>
#include <limits>
#include <map>

namespace fusionllm::scheduler::replicas {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool IsIdle(const Ring& ring) { return ring.devices.size() < 2 || ring.gradient_bytes == 0; }

double Rounds(const Ring& ring) { return 2.0 * static_cast<double>(ring.devices.size() - 1); }

double BytesOfALink(const Ring& ring) {
  return Rounds(ring) / static_cast<double>(ring.devices.size()) * static_cast<double>(ring.gradient_bytes);
}

template <class Visit>
void ForEachLink(const Ring& ring, const Visit& visit) {
  for (size_t i = 0; i < ring.devices.size(); ++i) visit(ring.devices[i], ring.devices[(i + 1) % ring.devices.size()]);
}

std::map<int, double> BytesOfResources(const Problem& problem, std::span<const Ring> rings) {
  std::map<int, double> resource_bytes;
  for (const Ring& ring : rings) {
    if (IsIdle(ring)) continue;
    ForEachLink(ring, [&](int src, int dst) {
      problem.links().ForEachResource(src, dst, problem.link(src, dst), [&](int r) { resource_bytes[r] += BytesOfALink(ring); });
    });
  }
  return resource_bytes;
}

double BusySeconds(const Problem& problem, const Ring& ring, int src, int dst, const std::map<int, double>& resource_bytes) {
  const DirectedLink link = problem.link(src, dst);
  double busy_s = BytesOfALink(ring) / link.own_bytes_per_s;
  problem.links().ForEachResource(
      src, dst, link, [&](int r) { busy_s = std::max(busy_s, resource_bytes.at(r) / problem.request().resources[r].bytes_per_s); });
  return busy_s;
}

Ring NearestNext(const Problem& problem, std::span<const int> devices, size_t start, int64_t gradient_bytes) {
  Ring ring{.devices = {devices[start]}, .gradient_bytes = gradient_bytes};
  const double bytes = static_cast<double>(gradient_bytes) / static_cast<double>(devices.size());
  std::vector<char> taken(devices.size(), 0);
  taken[start] = 1;
  while (ring.devices.size() < devices.size()) {
    size_t nearest = devices.size();
    double nearest_s = kInfinity;
    for (size_t i = 0; i < devices.size(); ++i) {
      if (taken[i]) continue;
      const DirectedLink link = problem.link(ring.devices.back(), devices[i]);
      const double seconds = link.bytes_per_s > 0 ? link.latency_s + bytes / link.bytes_per_s : kInfinity;
      if (nearest == devices.size() || seconds < nearest_s) {
        nearest = i;
        nearest_s = seconds;
      }
    }
    taken[nearest] = 1;
    ring.devices.push_back(devices[nearest]);
  }
  std::rotate(ring.devices.begin(), std::find(ring.devices.begin(), ring.devices.end(), devices[0]), ring.devices.end());
  return ring;
}

}  // namespace

double AllReduceSeconds(const Problem& problem, std::span<const Ring> rings) {
  const std::map<int, double> resource_bytes = BytesOfResources(problem, rings);
  double slowest_s = 0;
  for (const Ring& ring : rings) {
    if (IsIdle(ring)) continue;
    ForEachLink(ring, [&](int src, int dst) {
      const DirectedLink link = problem.link(src, dst);
      const bool there = link.bytes_per_s > 0;
      slowest_s =
          there ? std::max(slowest_s, Rounds(ring) * link.latency_s + BusySeconds(problem, ring, src, dst, resource_bytes)) : kInfinity;
    });
  }
  return slowest_s;
}

AllReduceUse UseOf(const Problem& problem, std::span<const Ring> rings) {
  const std::map<int, double> resource_bytes = BytesOfResources(problem, rings);
  AllReduceUse use;
  for (size_t stage = 0; stage < rings.size(); ++stage) {
    const Ring& ring = rings[stage];
    if (IsIdle(ring)) continue;
    ForEachLink(ring, [&](int src, int dst) {
      use.links.push_back({.stage = static_cast<int>(stage),
                           .src = problem.request().devices[src].name,
                           .dst = problem.request().devices[dst].name,
                           .rounds = static_cast<int>(Rounds(ring)),
                           .bytes = static_cast<int64_t>(BytesOfALink(ring)),
                           .busy_s = BusySeconds(problem, ring, src, dst, resource_bytes),
                           .latency_s = Rounds(ring) * problem.link(src, dst).latency_s});
    });
  }
  for (const auto& [resource, bytes] : resource_bytes) {
    const SharedResource& shared = problem.request().resources[resource];
    use.resources.push_back({.name = shared.name, .bytes = static_cast<int64_t>(bytes), .busy_s = bytes / shared.bytes_per_s});
  }
  return use;
}

int64_t AllReduceBytes(std::span<const Ring> rings) {
  int64_t bytes = 0;
  for (const Ring& ring : rings) {
    if (!IsIdle(ring)) bytes += 2 * static_cast<int64_t>(ring.devices.size() - 1) * ring.gradient_bytes;
  }
  return bytes;
}

Ring FastestRing(const Problem& problem, std::span<const int> devices, int64_t gradient_bytes) {
  Ring best{.devices = {devices.begin(), devices.end()}, .gradient_bytes = gradient_bytes};
  if (devices.size() < 3) return best;
  double best_s = AllReduceSeconds(problem, {&best, 1});
  const auto consider = [&](const Ring& ring) {
    const double seconds = AllReduceSeconds(problem, {&ring, 1});
    if (seconds >= best_s) return;
    best = ring;
    best_s = seconds;
  };
  if (devices.size() > kMostTriedOrders) {
    for (size_t start = 0; start < devices.size(); ++start) consider(NearestNext(problem, devices, start, gradient_bytes));
    return best;
  }
  std::vector<int> order(devices.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
  while (std::next_permutation(order.begin() + 1, order.end())) {
    Ring ring{.gradient_bytes = gradient_bytes};
    for (int i : order) ring.devices.push_back(devices[i]);
    consider(ring);
  }
  return best;
}

int64_t GradientBytes(const Problem& problem, int begin, int end) {
  const PlanRequest& request = problem.request();
  int64_t bytes = 0;
  for (int p = begin; p < end; ++p) bytes += request.ops[problem.op_at(p)].gradient_bytes;
  for (size_t t = 0; t < problem.tied().size(); ++t) {
    const auto& uses = problem.tied()[t];
    const auto here = std::lower_bound(uses.begin(), uses.end(), end) - std::lower_bound(uses.begin(), uses.end(), begin);
    bytes -= std::max<int64_t>(0, here - 1) * request.tied[t].bytes;
  }
  return std::max<int64_t>(0, bytes);
}

}  // namespace fusionllm::scheduler::replicas
