// The links of a request by pair of devices: what a message from one to the other meets, whichever of the request's rules says so.
//
// Devices are of one kind when every rule treats them alike: the same site, ports of the same rates, and neither an end of a Link nor of a
// site link themselves. Up to kMaxTabulatedKinds kinds are a table, kinds² of 32 bytes; beyond, each question searches the rules. Memory:
// linear in devices, links and site links otherwise. Immutable, borrows the request; safe to share.
#pragma once

#include <cstdint>
#include <vector>

#include "lib/scheduler/snapshot.h"

namespace fusionllm::scheduler {

struct DirectedLink {
  double latency_s = 0;
  double bytes_per_s = 0;      // least of its own rate and its shared resources'; 0: no such link
  double own_bytes_per_s = 0;  // of the pair alone
  int link = -1;               // into PlanRequest::links, or
  int site_link = -1;          // into PlanRequest::site_links
};

class DirectedLinks {
 public:
  static constexpr int kMaxTabulatedKinds = 1'024;

  // Precondition: Validate(request) is ok.
  explicit DirectedLinks(const PlanRequest& request);

  // Precondition: src != dst.
  DirectedLink Between(int src, int dst) const {
    return table_.empty() ? Find(src, dst) : table_[static_cast<size_t>(kind_[src]) * kinds() + kind_[dst]];
  }
  // The shared resources of that link, in the order of the way.
  template <class Visit>
  void ForEachResource(int src, int dst, const DirectedLink& link, const Visit& visit) const {
    if (link.link >= 0) {
      for (const int resource : request_->links[link.link].resources) visit(resource);
    } else if (link.site_link >= 0) {
      const SiteLink& rule = request_->site_links[link.site_link];
      const int out = rule.through_ports ? request_->devices[src].out_port : -1,
                in = rule.through_ports ? request_->devices[dst].in_port : -1;
      if (out >= 0) visit(out);
      for (const int resource : rule.resources) visit(resource);
      if (in >= 0) visit(in);
    }
  }

  int kinds() const { return static_cast<int>(members_.size()); }
  int kind(int device) const { return kind_[device]; }
  const std::vector<int>& members(int kind) const { return members_[kind]; }  // ascending

 private:
  // Rules sorted by their ends, to be searched.
  struct Rule {
    uint64_t ends;
    int index;
  };

  void SortRules();
  void GroupDevices();
  DirectedLink Find(int src, int dst) const;
  int Search(const std::vector<Rule>& rules, int src, int dst) const;
  DirectedLink OfPair(int link) const;
  DirectedLink OfSite(int site_link, int src, int dst) const;

  const PlanRequest* request_;
  std::vector<int> site_;  // of each device, into PlanRequest::sites; -1: none that links speak of
  std::vector<Rule> pairs_, from_device_, to_device_, between_sites_;
  std::vector<char> sends_, receives_;  // whether a rule has the device itself at that end
  std::vector<int> kind_;
  std::vector<std::vector<int>> members_;
  std::vector<DirectedLink> table_;
};

}  // namespace fusionllm::scheduler
