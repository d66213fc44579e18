#include "lib/scheduler/replicas/all_reduce.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <random>
#include <utility>

#include "lib/scheduler/infinity.h"

namespace fusionllm::scheduler::replicas {
namespace {

constexpr int kPasses = 4;       // of reversals
constexpr int kExchanges = 2;    // of devices, before reversals begin again
constexpr int kMaxTries = 2000;  // of chains, by beginning again

bool IsIdle(const Chain& chain) { return chain.devices.size() < 2 || chain.gradient_bytes == 0; }

template <class Visit>
void ForEachHop(const Chain& chain, const Visit& visit) {
  const std::vector<int>& devices = chain.devices;
  for (size_t i = 0; i + 1 < devices.size(); ++i) visit(devices[i], devices[i + 1]);
  for (size_t i = devices.size() - 1; i > 0; --i) visit(devices[i], devices[i - 1]);
}

// What all hops put on a resource: everything, and one chunk of each.
struct Load {
  int64_t bytes = 0;
  int64_t chunks_bytes = 0;
};
using Loads = std::map<int, Load>;

Loads LoadsOf(const Problem& problem, std::span<const Chain> chains) {
  Loads loads;
  for (const Chain& chain : chains) {
    if (IsIdle(chain)) continue;
    const int64_t chunk_bytes = ChunkBytes(chain.gradient_bytes);
    ForEachHop(chain, [&](int src, int dst) {
      problem.links().ForEachResource(src, dst, problem.link(src, dst), [&](int r) {
        Load& load = loads[r];
        load.bytes += chain.gradient_bytes;
        load.chunks_bytes += chunk_bytes;
      });
    });
  }
  return loads;
}

struct Hop {
  int src = 0, dst = 0;
  double busy_s = 0, latency_s = 0, begin_s = 0, end_s = 0;  // as ChainLink's
};

// Visits the hops of a chain and returns its seconds. Infinite, with hops missing, where a link is.
template <class Visit>
double Walk(const Problem& problem, const Chain& chain, const Loads& loads, const Visit& visit) {
  const double bytes = static_cast<double>(chain.gradient_bytes), chunk_bytes = static_cast<double>(ChunkBytes(chain.gradient_bytes));
  double begin_s = 0, behind_s = 0, arrived_s = 0;  // behind: the last chunk after the first one, where they are the furthest apart
  ForEachHop(chain, [&](int src, int dst) {
    const DirectedLink link = problem.link(src, dst);
    if (!(link.bytes_per_s > 0)) {
      arrived_s = kInfinity;
      return;
    }
    double busy_s = bytes / link.own_bytes_per_s, chunk_s = chunk_bytes / link.own_bytes_per_s;
    problem.links().ForEachResource(src, dst, link, [&](int r) {
      const Load& load = loads.at(r);
      const double bytes_per_s = problem.request().resources[r].bytes_per_s;
      busy_s = std::max(busy_s, static_cast<double>(load.bytes) / bytes_per_s);
      chunk_s = std::max(chunk_s, static_cast<double>(load.chunks_bytes) / bytes_per_s);
    });
    behind_s = std::max(behind_s, busy_s - chunk_s);
    const double end_s = begin_s + chunk_s + behind_s;
    visit(Hop{.src = src, .dst = dst, .busy_s = busy_s, .latency_s = link.latency_s, .begin_s = begin_s, .end_s = end_s});
    begin_s += chunk_s + link.latency_s;
    arrived_s = std::max(arrived_s, end_s + link.latency_s);
  });
  return arrived_s;
}

constexpr auto kIgnore = [](const Hop&) {};

// Seconds of the bytes from one to the other and back, on their slower way, and the latencies. Infinite where one cannot answer.
double Distance(const Problem& problem, int a, int b, double bytes) {
  const DirectedLink there = problem.link(a, b), back = problem.link(b, a);
  const double bytes_per_s = std::min(there.bytes_per_s, back.bytes_per_s);
  return bytes_per_s > 0 ? there.latency_s + back.latency_s + bytes / bytes_per_s : kInfinity;
}

Chain NearestNext(const Problem& problem, std::span<const int> devices, size_t start, int64_t gradient_bytes) {
  Chain chain{.devices = {devices[start]}, .gradient_bytes = gradient_bytes};
  std::vector<char> taken(devices.size(), 0);
  taken[start] = 1;
  while (chain.devices.size() < devices.size()) {
    size_t nearest = devices.size();
    double nearest_s = kInfinity;
    for (size_t i = 0; i < devices.size(); ++i) {
      if (taken[i]) continue;
      const double seconds = Distance(problem, chain.devices.back(), devices[i], static_cast<double>(gradient_bytes));
      if (nearest == devices.size() || seconds < nearest_s) {
        nearest = i;
        nearest_s = seconds;
      }
    }
    taken[nearest] = 1;
    chain.devices.push_back(devices[nearest]);
  }
  return chain;
}

// The fastest of the chains that it is given; of equally fast ones the first.
class Fastest {
 public:
  Fastest(const Problem& problem, Chain first) : problem_(problem), best_(std::move(first)), best_s_(Seconds(best_)) {}

  const Chain& best() const { return best_; }
  int tries() const { return tries_; }
  // Whether it is faster than all before.
  bool Consider(const Chain& chain) {
    ++tries_;
    const double seconds = Seconds(chain);
    if (!(seconds < best_s_ * (1 - kSameSeconds))) return false;
    best_ = chain;
    best_s_ = seconds;
    return true;
  }

 private:
  double Seconds(const Chain& chain) const { return AllReduceSeconds(problem_, {&chain, 1}); }

  const Problem& problem_;
  Chain best_;
  double best_s_;
  int tries_ = 0;
};

void ImproveByReversals(Fastest& fastest) {
  const size_t size = fastest.best().devices.size();
  bool improved = true;
  for (int pass = 0; improved && pass < kPasses; ++pass) {
    improved = false;
    for (size_t i = 0; i < size; ++i) {
      for (size_t j = i + 1; j < size; ++j) {
        Chain chain = fastest.best();
        std::reverse(chain.devices.begin() + static_cast<ptrdiff_t>(i), chain.devices.begin() + static_cast<ptrdiff_t>(j) + 1);
        improved = fastest.Consider(chain) || improved;
      }
    }
  }
}

// What no reversal makes faster may still be far from the fastest: a chain that passes through a site twice is rarely on the way there. So
// a few devices of the best one are exchanged, and that is improved, again and again.
void ImproveFromExchanges(const Problem& problem, Fastest& fastest) {
  std::mt19937_64 draws;  // the same numbers on every machine and in every call
  for (int tries = 0; tries < kMaxTries;) {
    Chain chain = fastest.best();
    for (int i = 0; i < kExchanges; ++i) {
      const size_t a = draws() % chain.devices.size(), b = draws() % chain.devices.size();
      std::swap(chain.devices[a], chain.devices[b]);
    }
    Fastest near(problem, std::move(chain));
    ImproveByReversals(near);
    fastest.Consider(near.best());
    tries += near.tries() + 1;
  }
}

}  // namespace

double AllReduceSeconds(const Problem& problem, std::span<const Chain> chains) {
  const Loads loads = LoadsOf(problem, chains);
  double slowest_s = 0;
  for (const Chain& chain : chains) {
    if (!IsIdle(chain)) slowest_s = std::max(slowest_s, Walk(problem, chain, loads, kIgnore));
  }
  return slowest_s;
}

AllReduceUsage UsageOf(const Problem& problem, std::span<const Chain> chains) {
  const PlanRequest& request = problem.request();
  const Loads loads = LoadsOf(problem, chains);
  AllReduceUsage use;
  for (size_t stage = 0; stage < chains.size(); ++stage) {
    const int64_t bytes = chains[stage].gradient_bytes;
    if (IsIdle(chains[stage])) continue;
    const int64_t chunk_bytes = ChunkBytes(bytes);
    Walk(problem, chains[stage], loads, [&](const Hop& hop) {
      use.links.push_back({.stage = static_cast<int>(stage),
                           .src = request.devices[hop.src].name,
                           .dst = request.devices[hop.dst].name,
                           .chunks = (bytes + chunk_bytes - 1) / chunk_bytes,
                           .bytes = bytes,
                           .busy_s = hop.busy_s,
                           .latency_s = hop.latency_s,
                           .begin_s = hop.begin_s,
                           .end_s = hop.end_s});
    });
  }
  for (const auto& [resource, load] : loads) {
    const SharedResource& shared = request.resources[resource];
    use.resources.push_back({.name = shared.name, .bytes = load.bytes, .busy_s = static_cast<double>(load.bytes) / shared.bytes_per_s});
  }
  return use;
}

int64_t BytesInFlight(const Chain& chain, size_t place) {
  if (IsIdle(chain)) return 0;
  const size_t size = chain.devices.size();
  const int64_t chunk_bytes = ChunkBytes(chain.gradient_bytes);
  const int64_t chunks = static_cast<int64_t>(size - std::max<size_t>(1, place)) * kChunksAhead + 1;
  const int64_t neighbours = (place > 0 ? 1 : 0) + (place + 1 < size ? 1 : 0);
  return std::min(chain.gradient_bytes, chunks * chunk_bytes) + neighbours * kCopiedChunks * chunk_bytes;
}

int64_t AllReduceBytes(std::span<const Chain> chains) {
  int64_t bytes = 0;
  for (const Chain& chain : chains) {
    if (!IsIdle(chain)) bytes += 2 * static_cast<int64_t>(chain.devices.size() - 1) * chain.gradient_bytes;
  }
  return bytes;
}

Chain FastestChain(const Problem& problem, std::span<const int> devices, int64_t gradient_bytes, Effort effort) {
  Fastest fastest(problem, {.devices = {devices.begin(), devices.end()}, .gradient_bytes = gradient_bytes});
  if (devices.size() < 3 || gradient_bytes == 0) return fastest.best();
  if (devices.size() > kMaxTriedOrders) {
    for (size_t start = 0; start < devices.size(); ++start) fastest.Consider(NearestNext(problem, devices, start, gradient_bytes));
    if (devices.size() <= kMaxImprovedDevices) {
      ImproveByReversals(fastest);
      if (effort == Effort::kFull) ImproveFromExchanges(problem, fastest);
    }
    return fastest.best();
  }
  std::vector<int> order(devices.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
  Chain chain = fastest.best();
  while (std::next_permutation(order.begin(), order.end())) {
    if (order.front() > order.back()) continue;  // another one backwards
    for (size_t i = 0; i < order.size(); ++i) chain.devices[i] = devices[order[i]];
    fastest.Consider(chain);
  }
  return fastest.best();
}

int64_t GradientBytes(const Problem& problem, int begin, int end) {
  int64_t bytes = 0;
  for (int p = begin; p < end; ++p) bytes += problem.request().ops[problem.op_at(p)].gradient_bytes;
  return bytes;
}

}  // namespace fusionllm::scheduler::replicas
