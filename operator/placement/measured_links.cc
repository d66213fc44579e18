#include "operator/placement/measured_links.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "lib/kube/api/json_fields.h"
#include "operator/placement/query.h"

namespace fusionllm::op::placement {
namespace {

using kube::At;
using nlohmann::json;

using Pair = std::pair<std::string, std::string>;

constexpr size_t kMaxLinks = 1024;
// Beyond these nothing was measured, but something was said.
constexpr double kMinBytesPerS = 1e3, kMaxBytesPerS = 1e12, kMaxRttS = 60;

double Number(const json& value) { return value.is_number() && std::isfinite(value.get<double>()) ? value.get<double>() : 0; }

// Devices of two clusters share the way between them: the widest of what single ones find is the nearest to it.
std::map<Pair, cache::LinkEstimate> WaysOf(const json& page) {
  std::map<Pair, cache::LinkEstimate> ways;
  size_t links = 0;
  for (const json& link : kube::ListOf(At(page, "links"))) {
    if (++links > kMaxLinks) break;
    const double bytes_per_s = Number(At(link, "bandwidth_bytes_per_second")), rtt_s = Number(At(link, "rtt_seconds"));
    if (bytes_per_s < kMinBytesPerS || bytes_per_s > kMaxBytesPerS || rtt_s < 0 || rtt_s > kMaxRttS) continue;
    const std::string from = ClusterOf(kube::TextAt(link, "src")), to = ClusterOf(kube::TextAt(link, "dst"));
    if (from.empty() || to.empty() || from == to) continue;
    cache::LinkEstimate& way = ways[{from, to}];
    way.bytes_per_s = std::max(way.bytes_per_s, bytes_per_s);
    if (rtt_s > 0) way.latency_s = way.latency_s > 0 ? std::min(way.latency_s, rtt_s / 2) : rtt_s / 2;
  }
  return ways;
}

bool Near(double kept, double now) { return std::abs(now - kept) <= MeasuredLinks::kTolerance * kept; }

}  // namespace

void MeasuredLinks::Learn(absl::string_view page, const job::FusionJob& job, const std::vector<std::string>& used,
                          const std::vector<cache::ClusterFacts>& clusters, absl::Time now) {
  const std::map<Pair, cache::LinkEstimate> ways = WaysOf(kube::ParseJson(page));
  const std::set<std::string> own(used.begin(), used.end());
  const base::MutexLock lock(mutex_);
  for (const auto& [ends, way] : ways) {
    const auto& [from, to] = ends;
    if (!own.contains(from) || !own.contains(to) || MeetAtRelay(from, to, job.spec.network.mode, clusters)) continue;
    if (!known_.contains(ends) && known_.size() >= kMaxPairs) {
      std::erase_if(known_, [&](const auto& entry) { return now - entry.second.at >= kMaxAge; });
      if (known_.size() >= kMaxPairs) return;
    }
    Known& known = known_[ends];
    known.at = now;
    if (!Near(known.way.bytes_per_s, way.bytes_per_s)) known.way.bytes_per_s = way.bytes_per_s;
    if (way.latency_s > 0 && !Near(known.way.latency_s, way.latency_s)) known.way.latency_s = way.latency_s;
  }
}

void MeasuredLinks::AddTo(std::vector<cache::ClusterFacts>& clusters, absl::Time now) const {
  const base::MutexLock lock(mutex_);
  for (cache::ClusterFacts& facts : clusters) {
    for (const auto& [ends, known] : known_) {
      if (ends.first == facts.name && now - known.at < kMaxAge) facts.measured[ends.second] = known.way;
    }
  }
}

}  // namespace fusionllm::op::placement
