#include "services/broker/profiles_document.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/base/json_text.h"
#include "lib/base/status_macros.h"
#include "lib/wire/profile_json.h"

namespace fusionllm::services {
namespace {

using nlohmann::json;
using Ends = std::pair<std::string, std::string>;

json Parse(const std::string& text) { return base::ParseJson(text); }

class DocumentWriter {
 public:
  DocumentWriter(const std::vector<std::string>& devices, const broker::RunState& state) : state_(state) {
    for (const auto& [name, text] : state.profiles()) {
      json profile = Parse(text);
      if (!profile.is_object()) continue;
      site_of_[name] = profile.value("site", name);
      if (std::find(devices.begin(), devices.end(), name) != devices.end()) profiles_.emplace(name, std::move(profile));
    }
    for (const std::string& device : devices) {
      if (profiles_.contains(device)) devices_.push_back(device);
    }
  }

  void DescribeFor(const broker::RequestPlan& ask) {
    for (const auto& [device, factor] : ask.slowness) {
      if (const auto profile = profiles_.find(device); profile != profiles_.end()) {
        profile->second["compute_scale"] = profile->second.value("compute_scale", 1.0) / factor;
      }
    }
    for (auto& [device, profile] : profiles_) profile["spare"] = false;
  }

  std::string Write() {
    json document = {{"devices", json::array()}, {"links", json::array()}};
    for (const std::string& device : devices_) document["devices"].push_back(profiles_.at(device));
    std::map<Ends, Ends> sites_done;  // sites, and the devices that stand for them
    for (const std::string& src : devices_) {
      for (const std::string& dst : devices_) {
        if (src == dst) continue;
        const Ends ends(src, dst);
        const auto line = state_.link_names().find(ends);
        if (line != state_.link_names().end()) {
          if (const auto link = MeasuredOf(line->second)) document["links"].push_back(Entry(ends, *link, line->second));
        } else {
          sites_done.emplace(Ends(site_of_.at(src), site_of_.at(dst)), ends);
        }
      }
    }
    for (const auto& [sites, stand_ins] : sites_done) {
      const std::optional<broker::Link> link = MeasuredBetween(sites);
      if (!link.has_value()) continue;
      const bool as_measured = profiles_.contains(link->src) && profiles_.contains(link->dst);
      document["links"].push_back(Entry(as_measured ? Ends(link->src, link->dst) : stand_ins, *link, ""));
    }
    return document.dump();
  }

 private:
  static json Entry(const Ends& ends, const broker::Link& link, const std::string& line) {
    json entry = {{"src", ends.first}, {"dst", ends.second}, {"rtt_seconds", link.rtt_s}, {"bandwidth_bytes_per_second", link.bytes_per_s}};
    if (!line.empty()) entry["shared_link"] = line;
    return entry;
  }

  // What pairs say of a link that they share, where they disagree: the lower rate and the longer way, so that none makes a link better
  // than others find it. The ends are those of the first.
  static void Add(const broker::Link& link, std::optional<broker::Link>& all) {
    if (!all.has_value()) all = link;
    all->rtt_s = std::max(all->rtt_s, link.rtt_s);
    all->bytes_per_s = std::min(all->bytes_per_s, link.bytes_per_s);
  }

  std::optional<broker::Link> MeasuredOf(const std::string& line) const {
    std::optional<broker::Link> all;
    for (const broker::Link& link : state_.links()) {
      const auto found = state_.link_names().find({link.src, link.dst});
      if (found != state_.link_names().end() && found->second == line) Add(link, all);
    }
    return all;
  }

  // Between devices that are there, if there is such a link.
  std::optional<broker::Link> MeasuredBetween(const Ends& sites) const {
    std::optional<broker::Link> here, lost;
    for (const broker::Link& link : state_.links()) {
      const auto src = site_of_.find(link.src), dst = site_of_.find(link.dst);
      if (src == site_of_.end() || dst == site_of_.end() || state_.link_names().contains({link.src, link.dst})) continue;
      if (Ends(src->second, dst->second) != sites) continue;
      Add(link, profiles_.contains(link.src) && profiles_.contains(link.dst) ? here : lost);
    }
    return here.has_value() ? here : lost;
  }

  const broker::RunState& state_;
  std::map<std::string, std::string> site_of_;  // of lost devices too
  std::map<std::string, json> profiles_;        // of the devices wanted
  std::vector<std::string> devices_;
};

}  // namespace

broker::LinkNames LinkNamesOf(const job::LinkTable& links) {
  const auto& sites = links.topology().spec.sites;
  broker::LinkNames names;
  for (const job::LinkTable::Place& from : links.devices()) {
    for (const job::LinkTable::Place& to : links.devices()) {
      if (from.device.name == to.device.name) continue;
      const absl::StatusOr<job::EffectiveLink> link = links.Between(from.device.name, to.device.name);
      if (!link.ok()) continue;  // LinkTable::Create has seen that every pair has one
      const std::string of_sites = absl::StrCat("link:", sites[from.site].name, "->", sites[to.site].name);
      for (const job::LinkResource& resource : link->path) {
        if (absl::StartsWith(resource.name, "link:") && resource.name != of_sites) {
          names[{from.device.name, to.device.name}] = resource.name;
        }
      }
    }
  }
  return names;
}

std::string ProfilesDocument(const std::vector<std::string>& devices, const broker::RunState& state) {
  return DocumentWriter(devices, state).Write();
}

std::string ProfilesFor(const broker::RequestPlan& ask, const std::vector<std::string>& devices, const broker::RunState& state) {
  DocumentWriter writer(devices, state);
  writer.DescribeFor(ask);
  return writer.Write();
}

absl::Status TakeKnownProfiles(const std::string& text, const std::string& backend, const job::LinkTable* topology,
                               broker::RunOptions& options) {
  FUSIONLLM_ASSIGN_OR_RETURN(wire::ProfilesDocument profiles, wire::ParseProfiles(text));
  for (wire::DeviceProfile& device : profiles.devices) {
    if (device.backend != backend) continue;
    if (topology != nullptr) {
      const auto& places = topology->devices();
      const auto place =
          std::find_if(places.begin(), places.end(), [&](const job::LinkTable::Place& p) { return p.device.name == device.name; });
      if (place == places.end() || place->device.threads != device.threads) continue;
      device.site = topology->topology().spec.sites[place->site].name;
      device.compute_scale = place->device.compute_scale;
      device.spare = place->device.role == job::Role::kSpare;
      if (place->device.memory.has_value()) device.memory_bytes = place->device.memory->bytes;
    }
    options.known_profiles[device.name] = wire::PrintProfile(device);
  }
  for (const wire::MeasuredLink& link : profiles.links) {
    if (!options.known_profiles.contains(link.src) || !options.known_profiles.contains(link.dst)) continue;
    options.known_links.push_back(
        {.src = link.src, .dst = link.dst, .rtt_s = link.rtt_seconds, .bytes_per_s = link.bandwidth_bytes_per_second});
    if (topology == nullptr && !link.shared_link.empty()) options.link_names[{link.src, link.dst}] = link.shared_link;
  }
  return absl::OkStatus();
}

}  // namespace fusionllm::services
