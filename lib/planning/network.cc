#include "lib/planning/network.h"

#include <map>
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
  FUSIONLLM_ASSIGN_OR_RETURN(const job::LinkTable table, job::LinkTable::Create(topology));
  Network network;
  ResourceTable resources(network);
  const auto& devices = table.devices();
  for (size_t src = 0; src < devices.size(); ++src) {
    for (size_t dst = 0; dst < devices.size(); ++dst) {
      if (src == dst) continue;
      FUSIONLLM_ASSIGN_OR_RETURN(const job::EffectiveLink effective, table.Between(devices[src].device.name, devices[dst].device.name));
      scheduler::Link link{.src = static_cast<int>(src),
                           .dst = static_cast<int>(dst),
                           .latency_s = effective.latency.seconds(),
                           .bytes_per_s = effective.bandwidth.bytes_per_s()};
      for (const job::LinkResource& resource : effective.path) {
        link.resources.push_back(resources.IdOf(resource.name, resource.bandwidth.bytes_per_s()));
      }
      network.links.push_back(std::move(link));
    }
  }
  return network;
}

Network NetworkOf(const std::vector<wire::DeviceProfile>& devices, const std::vector<wire::MeasuredLink>& links) {
  using Pair = std::pair<std::string, std::string>;
  std::map<std::string, std::string> site_of;
  for (const wire::DeviceProfile& device : devices) site_of[device.name] = device.site;
  std::map<Pair, const wire::MeasuredLink*> of_devices, of_sites;
  for (const wire::MeasuredLink& link : links) {
    of_devices[{link.src, link.dst}] = &link;
    if (!link.line.empty()) continue;
    const wire::MeasuredLink*& representative = of_sites[{site_of[link.src], site_of[link.dst]}];
    if (representative == nullptr || representative->bandwidth_bytes_per_second < link.bandwidth_bytes_per_second) representative = &link;
  }
  const auto representative_of = [&](const std::string& from, const std::string& to) -> const wire::MeasuredLink* {
    if (const auto there = of_sites.find({from, to}); there != of_sites.end()) return there->second;
    const auto back = of_sites.find({to, from});
    return back == of_sites.end() ? nullptr : back->second;
  };

  Network network;
  ResourceTable resources(network);
  for (size_t src = 0; src < devices.size(); ++src) {
    for (size_t dst = 0; dst < devices.size(); ++dst) {
      const std::string &from = devices[src].site, &to = devices[dst].site;
      const auto own = of_devices.find({devices[src].name, devices[dst].name});
      if (src != dst && own != of_devices.end() && !own->second->line.empty()) {
        const double rate = own->second->bandwidth_bytes_per_second;
        network.links.push_back({.src = static_cast<int>(src),
                                 .dst = static_cast<int>(dst),
                                 .latency_s = own->second->rtt_seconds / 2,
                                 .bytes_per_s = rate,
                                 .resources = {resources.IdOf(absl::StrCat("line:", own->second->line), rate)}});
        continue;
      }
      const wire::MeasuredLink* representative = src == dst ? nullptr : representative_of(from, to);
      if (representative == nullptr) continue;
      const double rate = representative->bandwidth_bytes_per_second;
      scheduler::Link link{.src = static_cast<int>(src),
                           .dst = static_cast<int>(dst),
                           .latency_s = (own == of_devices.end() ? representative : own->second)->rtt_seconds / 2,
                           .bytes_per_s = rate};
      if (from == to) {
        link.resources = {resources.IdOf(absl::StrCat("port:", devices[src].name, ":out"), rate),
                          resources.IdOf(absl::StrCat("port:", devices[dst].name, ":in"), rate)};
      } else {
        link.resources = {resources.IdOf(absl::StrCat("link:", from, "->", to), rate)};
      }
      network.links.push_back(std::move(link));
    }
  }
  return network;
}

}  // namespace fusionllm::planning
