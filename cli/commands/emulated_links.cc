#include "cli/commands/emulated_links.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/base/status_macros.h"
#include "lib/estimator/rate_fit.h"
#include "lib/transport/link_emulator.h"

namespace fusionllm::cli {
namespace {

constexpr uint64_t kSeed = 1;
constexpr uint64_t kMinTransferBytes = 256, kMaxTransferBytes = 16 << 20;  // growing four times
constexpr int kTimes = 3;
constexpr int64_t kPauseNs = 60'000'000'000;  // longer than any transfer's aftermath

using Pair = std::pair<std::string, std::string>;

// Seconds until the last of so many bytes is there, which leave at ready_ns; in slices, as messages are sent.
double Carry(transport::LinkEmulator& link, int64_t ready_ns, uint64_t bytes) {
  int64_t free_ns = ready_ns, arrived_ns = ready_ns;
  for (uint64_t left = bytes; left > 0;) {
    const uint64_t slice = std::min(left, link.slice_bytes());
    const transport::LinkEmulator::Transit passage = link.Pass(free_ns, slice);
    free_ns = passage.sent_ns;
    arrived_ns = std::max(arrived_ns, passage.arrival_ns);
    left -= slice;
  }
  return static_cast<double>(arrived_ns - ready_ns) * 1e-9;
}

absl::StatusOr<wire::MeasuredLink> Measure(const job::EffectiveLink& declared, const Pair& ends) {
  transport::EmulatedPath path{.latency_ns = declared.latency.ns, .jitter_ns = declared.jitter.ns, .loss = declared.loss};
  std::vector<transport::BucketSpec> specs;
  for (const job::LinkResource& resource : declared.path) {
    specs.push_back({resource.name, resource.bandwidth.bytes_per_s()});
    path.buckets.push_back(resource.name);
  }
  FUSIONLLM_ASSIGN_OR_RETURN(std::shared_ptr<transport::SharedBuckets> buckets, transport::SharedBuckets::InMemory(specs));
  FUSIONLLM_ASSIGN_OR_RETURN(transport::LinkEmulator link,
                             transport::LinkEmulator::Create(std::move(buckets), path, kSeed, absl::StrCat(ends.first, "->", ends.second)));
  std::vector<estimator::TransferSample> samples;
  int64_t now_ns = 0;
  for (uint64_t bytes = kMinTransferBytes; bytes <= kMaxTransferBytes; bytes *= 4) {
    for (int i = 0; i < kTimes; ++i) {
      const double seconds = Carry(link, now_ns, bytes);
      samples.push_back({static_cast<double>(bytes), std::max(seconds, 1e-9)});
      now_ns += static_cast<int64_t>(seconds * 1e9) + kPauseNs;
    }
  }
  const absl::StatusOr<estimator::LinkFit> fit = estimator::FitLink(samples);
  wire::MeasuredLink measured{.src = ends.first, .dst = ends.second};
  if (!fit.ok()) {
    measured.latency_seconds = declared.latency.seconds();
    measured.bandwidth_bytes_per_second = declared.bandwidth.bytes_per_s();
    return measured;
  }
  measured.latency_seconds = fit->latency_s;
  measured.bandwidth_bytes_per_second = fit->bytes_per_s;
  measured.samples = fit->samples;
  measured.relative_error = fit->relative_error;
  measured.latency_ci95_seconds = fit->latency_ci95_s;
  measured.bandwidth_ci95_bytes_per_second = fit->bytes_per_s_ci95;
  return measured;
}

}  // namespace

absl::StatusOr<std::vector<wire::MeasuredLink>> MeasureEmulatedLinks(const job::Topology& topology,
                                                                     const std::vector<std::string>& devices) {
  if (devices.size() > kMaxLinkedDevices) {
    return absl::InvalidArgumentError(absl::StrFormat("links of %d devices: more than %d", devices.size(), kMaxLinkedDevices));
  }
  FUSIONLLM_ASSIGN_OR_RETURN(const job::LinkTable table, job::LinkTable::Create(topology));
  std::map<std::string, std::string> site_of;
  for (const job::LinkTable::Place& place : table.devices()) site_of[place.device.name] = topology.spec.sites[place.site].name;
  std::map<std::string, wire::MeasuredLink> measured;  // by "SITE->SITE", or by the name of a link that is not one of sites
  std::vector<wire::MeasuredLink> links;
  for (const std::string& src : devices) {
    for (const std::string& dst : devices) {
      if (src == dst) continue;
      FUSIONLLM_ASSIGN_OR_RETURN(const job::EffectiveLink declared, table.Between(src, dst));
      const std::string sites = absl::StrCat(site_of[src], "->", site_of[dst]), of_sites = absl::StrCat("link:", sites);
      std::string line;
      for (const job::LinkResource& resource : declared.path) {
        if (absl::StartsWith(resource.name, "link:") && resource.name != of_sites) line = resource.name;
      }
      const std::string& name = line.empty() ? sites : line;
      const bool known = measured.contains(name);
      if (!known) {
        FUSIONLLM_ASSIGN_OR_RETURN(measured[name], Measure(declared, {src, dst}));
      }
      if (known && line.empty()) continue;  // one pair speaks for its sites
      wire::MeasuredLink& link = links.emplace_back(measured[name]);
      link.src = src;
      link.dst = dst;
      link.shared_link = line;
    }
  }
  std::map<Pair, double> latency_s;
  for (const wire::MeasuredLink& link : links) {
    const Pair ends = link.shared_link.empty() ? Pair(site_of[link.src], site_of[link.dst]) : Pair(link.src, link.dst);
    latency_s[ends] = *link.latency_seconds;
  }
  for (wire::MeasuredLink& link : links) {
    const Pair back = link.shared_link.empty() ? Pair(site_of[link.dst], site_of[link.src]) : Pair(link.dst, link.src);
    const auto found = latency_s.find(back);
    link.rtt_seconds = *link.latency_seconds + (found == latency_s.end() ? *link.latency_seconds : found->second);
  }
  return links;
}

}  // namespace fusionllm::cli
