#include "lib/scheduler/directed_links.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "absl/strings/string_view.h"

namespace fusionllm::scheduler {
namespace {

uint64_t Ends(int src, int dst) { return static_cast<uint64_t>(src) << 32 | static_cast<uint32_t>(dst); }

}  // namespace

DirectedLinks::DirectedLinks(const PlanRequest& request) : request_(&request) {
  std::map<absl::string_view, int> sites;
  for (size_t s = 0; s < request.sites.size(); ++s) sites[request.sites[s]] = static_cast<int>(s);
  for (const Device& device : request.devices) {
    const auto found = sites.find(device.site);
    site_.push_back(found == sites.end() ? -1 : found->second);
  }
  SortRules();
  GroupDevices();
  if (kinds() > kMaxTabulatedKinds) return;
  table_.resize(static_cast<size_t>(kinds()) * kinds());
  for (int a = 0; a < kinds(); ++a) {
    for (int b = 0; b < kinds(); ++b) {
      // Of one kind: any two of it; a kind of one has no pair.
      const int src = members_[a][0], dst = a == b ? members_[b].back() : members_[b][0];
      if (src != dst) table_[static_cast<size_t>(a) * kinds() + b] = Find(src, dst);
    }
  }
}

void DirectedLinks::SortRules() {
  sends_.assign(request_->devices.size(), 0);
  receives_.assign(request_->devices.size(), 0);
  for (size_t l = 0; l < request_->links.size(); ++l) {
    const Link& link = request_->links[l];
    pairs_.push_back({Ends(link.src, link.dst), static_cast<int>(l)});
    sends_[link.src] = receives_[link.dst] = 1;
  }
  for (size_t l = 0; l < request_->site_links.size(); ++l) {
    const SiteLink& link = request_->site_links[l];
    const int index = static_cast<int>(l);
    if (link.src.device >= 0) {
      from_device_.push_back({Ends(link.src.device, link.dst.site), index});
      sends_[link.src.device] = 1;
    } else if (link.dst.device >= 0) {
      to_device_.push_back({Ends(link.src.site, link.dst.device), index});
      receives_[link.dst.device] = 1;
    } else {
      between_sites_.push_back({Ends(link.src.site, link.dst.site), index});
    }
  }
  for (std::vector<Rule>* rules : {&pairs_, &from_device_, &to_device_, &between_sites_}) {
    std::sort(rules->begin(), rules->end(), [](const Rule& a, const Rule& b) { return a.ends < b.ends; });
  }
}

void DirectedLinks::GroupDevices() {
  std::map<std::tuple<int, double, double>, int> kind_of;
  const auto rate = [&](int port) { return port < 0 ? 0 : request_->resources[port].bytes_per_s; };
  for (size_t d = 0; d < request_->devices.size(); ++d) {
    const Device& device = request_->devices[d];
    int kind = static_cast<int>(members_.size());
    if (!sends_[d] && !receives_[d] && site_[d] >= 0) {
      kind = kind_of.insert({{site_[d], rate(device.out_port), rate(device.in_port)}, kind}).first->second;
    }
    if (kind == kinds()) members_.emplace_back();
    members_[kind].push_back(static_cast<int>(d));
    kind_.push_back(kind);
  }
}

int DirectedLinks::Search(const std::vector<Rule>& rules, int src, int dst) const {
  const uint64_t ends = Ends(src, dst);
  const auto found = std::lower_bound(rules.begin(), rules.end(), ends, [](const Rule& rule, uint64_t key) { return rule.ends < key; });
  return found == rules.end() || found->ends != ends ? -1 : found->index;
}

DirectedLink DirectedLinks::OfPair(int link) const {
  const Link& pair = request_->links[link];
  DirectedLink result{.latency_s = pair.latency_s, .bytes_per_s = pair.bytes_per_s, .own_bytes_per_s = pair.bytes_per_s, .link = link};
  for (const int resource : pair.resources) result.bytes_per_s = std::min(result.bytes_per_s, request_->resources[resource].bytes_per_s);
  return result;
}

DirectedLink DirectedLinks::OfSite(int site_link, int src, int dst) const {
  const SiteLink& rule = request_->site_links[site_link];
  DirectedLink result{
      .latency_s = rule.latency_s, .bytes_per_s = rule.bytes_per_s, .own_bytes_per_s = rule.bytes_per_s, .site_link = site_link};
  ForEachResource(src, dst, result,
                  [&](int resource) { result.bytes_per_s = std::min(result.bytes_per_s, request_->resources[resource].bytes_per_s); });
  return result;
}

DirectedLink DirectedLinks::Find(int src, int dst) const {
  if (sends_[src] && receives_[dst]) {
    if (const int pair = Search(pairs_, src, dst); pair >= 0) return OfPair(pair);
  }
  int rule = -1;
  if (sends_[src] && site_[dst] >= 0) rule = Search(from_device_, src, site_[dst]);
  if (rule < 0 && receives_[dst] && site_[src] >= 0) rule = Search(to_device_, site_[src], dst);
  if (rule < 0 && site_[src] >= 0 && site_[dst] >= 0) rule = Search(between_sites_, site_[src], site_[dst]);
  return rule < 0 ? DirectedLink{} : OfSite(rule, src, dst);
}

}  // namespace fusionllm::scheduler
