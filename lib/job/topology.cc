#include "lib/job/topology.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/job/checks.h"

namespace fusionllm::job {
namespace {

uint64_t Key(int from, int to) { return static_cast<uint64_t>(from) << 32 | static_cast<uint32_t>(to); }

}  // namespace

LinkTable::LinkTable(const Topology& topology) : topology_(topology) {
  const TopologySpec& spec = topology_.spec;
  const int sites = static_cast<int>(spec.sites.size());
  for (int s = 0; s < sites; ++s) ids_.emplace(spec.sites[s].name, s);
  devices_of_site_.resize(sites);
  for (int s = 0; s < sites; ++s) {
    for (const Device& device : spec.sites[s].devices) {
      const int id = sites + static_cast<int>(places_.size());
      ids_.emplace(device.name, id);
      devices_of_site_[s].push_back(id);
      places_.push_back({s, device});
    }
  }
  const auto add = [&](size_t index, const std::string& from, const std::string& to) {
    const int a = IdOf(from), b = IdOf(to);
    if (a < 0 || b < 0) return;
    has_mixed_links_ = has_mixed_links_ || (a < sites) != (b < sites);
    links_.try_emplace(Key(a, b), DirectedLink{index, from, to});
  };
  for (size_t i = 0; i < spec.links.size(); ++i) add(i, spec.links[i].from, spec.links[i].to);
  for (size_t i = 0; i < spec.links.size(); ++i) {
    if (spec.links[i].symmetric) add(i, spec.links[i].to, spec.links[i].from);
  }
  for (size_t i = 0; i < spec.shared_uplinks.size(); ++i) uplinks_.try_emplace(IdOf(spec.shared_uplinks[i].site), i);
}

int LinkTable::IdOf(absl::string_view name) const {
  const auto found = ids_.find(std::string(name));
  return found == ids_.end() ? -1 : found->second;
}

const LinkTable::DirectedLink* LinkTable::Find(int from, int to) const {
  const auto found = links_.find(Key(from, to));
  return found == links_.end() ? nullptr : &found->second;
}

absl::StatusOr<LinkTable> LinkTable::Create(const Topology& topology) {
  std::vector<std::string> findings;
  CheckTopology(topology, [&](std::initializer_list<absl::string_view> paths, absl::string_view message) {
    findings.push_back(absl::StrCat(*paths.begin(), ": ", message));
  });
  if (!findings.empty()) return absl::InvalidArgumentError(absl::StrJoin(findings, "\n"));
  return LinkTable(topology);
}

absl::StatusOr<EffectiveLink> LinkTable::Between(absl::string_view from, absl::string_view to) const {
  const int sites = static_cast<int>(topology_.spec.sites.size());
  const int a = IdOf(from), b = IdOf(to);
  if (a < sites || b < sites) {
    return absl::NotFoundError(absl::StrCat("no device ", a < sites ? from : to, " in topology ", topology_.metadata.name));
  }
  if (a == b) return absl::InvalidArgumentError(absl::StrCat("device ", from, " has no link to itself"));
  const int site_a = places_[a - sites].site, site_b = places_[b - sites].site;

  EffectiveLink result;
  const auto pass_link = [&](const DirectedLink& link) {
    const Link& spec = topology_.spec.links[link.index];
    result.latency = spec.latency;
    result.jitter = spec.jitter;
    result.loss = spec.loss;
    result.path.push_back({absl::StrCat("link:", link.from, "->", link.to), spec.bandwidth});
  };
  const auto pass_uplink = [&](int site, std::optional<Bandwidth> SharedUplink::*direction, absl::string_view suffix) {
    const auto found = uplinks_.find(site);
    if (found == uplinks_.end()) return;
    const SharedUplink& uplink = topology_.spec.shared_uplinks[found->second];
    if (uplink.*direction) result.path.push_back({absl::StrCat("uplink:", uplink.site, suffix), *(uplink.*direction)});
  };

  if (const DirectedLink* own = Find(a, b)) {
    pass_link(*own);
  } else {
    const InternalNetwork& sender = topology_.spec.sites[site_a].internal;
    const InternalNetwork& receiver = topology_.spec.sites[site_b].internal;
    result.path.push_back({absl::StrCat("port:", from, ":out"), sender.bandwidth});
    if (site_a == site_b) {
      result.latency = sender.latency;
    } else {
      const DirectedLink* link = Find(a, site_b);
      if (link == nullptr) link = Find(site_a, b);
      if (link == nullptr) link = Find(site_a, site_b);
      if (link == nullptr) return absl::NotFoundError(absl::StrCat("no link from ", from, " to ", to));
      pass_uplink(site_a, &SharedUplink::egress, ":out");
      pass_link(*link);
      pass_uplink(site_b, &SharedUplink::ingress, ":in");
    }
    result.path.push_back({absl::StrCat("port:", to, ":in"), receiver.bandwidth});
  }
  result.bandwidth = std::min_element(result.path.begin(), result.path.end(), [](const LinkResource& x, const LinkResource& y) {
                       return x.bandwidth.bits_per_s < y.bandwidth.bits_per_s;
                     })->bandwidth;
  return result;
}

std::string LinkTable::GapBetween(int from_site, int to_site) const {
  const bool site_link = Find(from_site, to_site) != nullptr;
  if (site_link && !has_mixed_links_) return "";
  const int sites = static_cast<int>(topology_.spec.sites.size());
  const auto name = [&](int device) -> const std::string& { return places_[device - sites].device.name; };
  std::vector<int> covered_from, covered_to, bare_from, bare_to;
  for (const int a : devices_of_site_[from_site]) (has_mixed_links_ && Find(a, to_site) ? covered_from : bare_from).push_back(a);
  for (const int b : devices_of_site_[to_site]) (has_mixed_links_ && Find(from_site, b) ? covered_to : bare_to).push_back(b);
  // Each round of these loops that does not return has used up one link between two devices, so they end soon.
  for (const int a : covered_from) {
    for (const int b : covered_to) {
      if (Find(a, b)) continue;
      return absl::StrCat("from ", name(a), " to ", name(b),
                          " two links apply, one to its site and one from its site: add one between the two");
    }
  }
  if (site_link) return "";
  for (const int a : bare_from) {
    for (const int b : bare_to) {
      if (Find(a, b)) continue;
      const DirectedLink* back = Find(to_site, from_site);
      return absl::StrCat("no link leads from ", name(a), " to ", name(b), ": add one from ", topology_.spec.sites[from_site].name, " to ",
                          topology_.spec.sites[to_site].name,
                          back ? absl::StrCat(", or symmetric: true to spec.links[", back->index, "]") : "");
    }
  }
  return "";
}

std::vector<std::string> LinkTable::Gaps(const Topology& topology, size_t max) {
  const LinkTable table(topology);
  std::vector<std::string> gaps;
  const int sites = static_cast<int>(topology.spec.sites.size());
  for (int a = 0; a < sites; ++a) {
    for (int b = 0; b < sites && gaps.size() < max; ++b) {
      std::string gap = a == b ? "" : table.GapBetween(a, b);
      if (!gap.empty()) gaps.push_back(std::move(gap));
    }
  }
  return gaps;
}

}  // namespace fusionllm::job
