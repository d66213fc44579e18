#include "lib/planning/network.h"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"

namespace fusionllm::planning {
namespace {

// Resources by name, each once.
class ResourceTable {
 public:
  explicit ResourceTable(Network& network) : network_(network) {}
  int IdOf(const std::string& name, double bytes_per_s) {
    const auto [found, added] = ids_.emplace(name, static_cast<int>(network_.resources.size()));
    if (added) network_.resources.push_back({.name = name, .bytes_per_s = bytes_per_s});
    return found->second;
  }

 private:
  Network& network_;
  std::map<std::string, int> ids_;
};

}  // namespace

absl::StatusOr<Network> NetworkOf(const job::Topology& topology) {
  FUSIONLLM_ASSIGN_OR_RETURN(const job::LinkTable table, job::LinkTable::Create(topology));  // names are known from here on
  const job::TopologySpec& spec = topology.spec;
  Network network;
  ResourceTable resources(network);
  std::map<std::string, scheduler::LinkEnd> ends;
  std::map<std::string, const job::SharedUplink*> uplinks;
  for (const job::SharedUplink& uplink : spec.shared_uplinks) uplinks[uplink.site] = &uplink;
  for (const job::LinkTable::Place& place : table.devices()) {
    const std::string& name = place.device.name;
    const double rate = spec.sites[place.site].internal.bandwidth.bytes_per_s();
    ends[name] = {.device = static_cast<int>(network.ports.size())};
    network.ports.push_back(
        {.out = resources.IdOf(absl::StrCat("port:", name, ":out"), rate), .in = resources.IdOf(absl::StrCat("port:", name, ":in"), rate)});
  }
  for (const job::Site& site : spec.sites) {
    const int index = static_cast<int>(network.sites.size());
    ends[site.name] = {.site = index};
    network.sites.push_back(site.name);
    network.site_links.push_back({.src = {.site = index},
                                  .dst = {.site = index},
                                  .latency_s = site.internal.latency.seconds(),
                                  .bytes_per_s = site.internal.bandwidth.bytes_per_s(),
                                  .through_ports = true});
  }
  const auto site_of = [&](const scheduler::LinkEnd& end) { return end.site >= 0 ? end.site : table.devices()[end.device].site; };
  const auto uplink_of = [&](const scheduler::LinkEnd& end, std::optional<job::Bandwidth> job::SharedUplink::*direction,
                             absl::string_view suffix, std::vector<int>& path) {
    const std::string& site = network.sites[site_of(end)];
    const auto found = uplinks.find(site);
    if (found == uplinks.end() || !(found->second->*direction)) return;
    path.push_back(resources.IdOf(absl::StrCat("uplink:", site, suffix), (found->second->*direction)->bytes_per_s()));
  };
  std::set<std::pair<std::string, std::string>> seen;
  const auto add = [&](const job::Link& link, const std::string& from, const std::string& to) {
    if (!seen.insert({from, to}).second) return;
    const scheduler::LinkEnd src = ends[from], dst = ends[to];
    const double latency_s = link.latency.seconds(), rate = link.bandwidth.bytes_per_s();
    const int own = resources.IdOf(absl::StrCat("link:", from, "->", to), rate);
    if (src.device >= 0 && dst.device >= 0) {
      network.links.push_back({.src = src.device, .dst = dst.device, .latency_s = latency_s, .bytes_per_s = rate, .resources = {own}});
      return;
    }
    scheduler::SiteLink rule{.src = src, .dst = dst, .latency_s = latency_s, .bytes_per_s = rate, .through_ports = true};
    uplink_of(src, &job::SharedUplink::egress, ":out", rule.resources);
    rule.resources.push_back(own);
    uplink_of(dst, &job::SharedUplink::ingress, ":in", rule.resources);
    network.site_links.push_back(std::move(rule));
  };
  for (const job::Link& link : spec.links) add(link, link.from, link.to);
  for (const job::Link& link : spec.links) {
    if (link.symmetric) add(link, link.to, link.from);
  }
  return network;
}

Network NetworkOf(const std::vector<wire::DeviceProfile>& devices, const std::vector<wire::MeasuredLink>& links) {
  using Pair = std::pair<std::string, std::string>;
  Network network;
  ResourceTable resources(network);
  std::map<std::string, int> device_of, site_of;
  for (const wire::DeviceProfile& device : devices) {
    device_of[device.name] = static_cast<int>(device_of.size());
    if (site_of.emplace(device.site, static_cast<int>(network.sites.size())).second) network.sites.push_back(device.site);
  }
  const auto site_name = [&](const std::string& device) -> const std::string& { return devices[device_of[device]].site; };
  std::map<Pair, const wire::MeasuredLink*> of_sites;
  for (const wire::MeasuredLink& link : links) {
    if (!link.shared_link.empty()) continue;
    const wire::MeasuredLink*& representative = of_sites[{site_name(link.src), site_name(link.dst)}];
    if (representative == nullptr || representative->bandwidth_bytes_per_second < link.bandwidth_bytes_per_second) representative = &link;
  }
  for (const auto& [sites, link] : std::map(of_sites)) of_sites.emplace(Pair(sites.second, sites.first), link);

  for (const wire::DeviceProfile& device : devices) {
    Network::Ports ports;
    if (const auto inside = of_sites.find({device.site, device.site}); inside != of_sites.end()) {
      const double rate = inside->second->bandwidth_bytes_per_second;
      ports.out = resources.IdOf(absl::StrCat("port:", device.name, ":out"), rate);
      ports.in = resources.IdOf(absl::StrCat("port:", device.name, ":in"), rate);
    }
    network.ports.push_back(ports);
  }
  for (const auto& [sites, link] : of_sites) {
    const double rate = link->bandwidth_bytes_per_second;
    scheduler::SiteLink rule{.src = {.site = site_of[sites.first]},
                             .dst = {.site = site_of[sites.second]},
                             .latency_s = link->OneWaySeconds(),
                             .bytes_per_s = rate,
                             .through_ports = sites.first == sites.second};
    if (!rule.through_ports) rule.resources = {resources.IdOf(absl::StrCat("link:", sites.first, "->", sites.second), rate)};
    network.site_links.push_back(std::move(rule));
  }
  // Of a pair that was measured twice the last counts.
  std::map<Pair, const wire::MeasuredLink*> of_devices;
  for (const wire::MeasuredLink& link : links) of_devices[{link.src, link.dst}] = &link;
  for (const auto& [ends, own] : of_devices) {
    const int src = device_of[own->src], dst = device_of[own->dst];
    scheduler::Link link{.src = src, .dst = dst, .latency_s = own->OneWaySeconds()};
    if (!own->shared_link.empty()) {
      link.bytes_per_s = own->bandwidth_bytes_per_second;
      link.resources = {resources.IdOf(absl::StrCat("line:", own->shared_link), link.bytes_per_s)};
    } else {
      const Pair sites(devices[src].site, devices[dst].site);
      const wire::MeasuredLink& rule = *of_sites[sites];
      if (rule.OneWaySeconds() == own->OneWaySeconds()) continue;  // as the rule says
      link.bytes_per_s = rule.bandwidth_bytes_per_second;
      if (sites.first == sites.second) {
        link.resources = {network.ports[src].out, network.ports[dst].in};
      } else {
        link.resources = {resources.IdOf(absl::StrCat("link:", sites.first, "->", sites.second), link.bytes_per_s)};
      }
    }
    network.links.push_back(std::move(link));
  }
  return network;
}

}  // namespace fusionllm::planning
