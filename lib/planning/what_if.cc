#include "lib/planning/what_if.h"

#include <algorithm>
#include <span>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "lib/base/nearest_name.h"
#include "lib/base/status_macros.h"
#include "lib/job/units.h"
#include "lib/scheduler/schedule_variants.h"

namespace fusionllm::planning {
namespace {

constexpr size_t kMaxListed = 20;
constexpr size_t kMaxGuesses = 4096;  // names that a guess is made among

constexpr std::pair<absl::string_view, ScheduleVariant> kVariants[] = {{"1f1b-split", ScheduleVariant::kSplitBackward},
                                                                       {"interleaved", ScheduleVariant::kInterleaved}};

// Those there are, behind a name that is none of them.
std::string List(absl::string_view wanted, std::vector<std::string> names) {
  if (names.empty()) return "there are none";
  const std::string near = base::NearestNameOrPart(wanted, std::span(names).first(std::min(names.size(), kMaxGuesses)));
  const bool more = names.size() > kMaxListed;
  const size_t all = names.size();
  if (more) names.resize(kMaxListed);
  return absl::StrCat(near.empty() ? "" : absl::StrCat("did you mean ", near, "? "), "there are ", absl::StrJoin(names, ", "),
                      more ? absl::StrFormat(" and %d more", all - kMaxListed) : std::string());
}

// One KEY=VALUE, where KEY is KIND:NAME[.FIELD].
struct Edit {
  std::string text, name, field, value;

  absl::Status Error(absl::string_view what) const { return absl::InvalidArgumentError(absl::StrCat("what-if '", text, "': ", what)); }
  absl::Status NoField(absl::string_view fields) const { return Error(absl::StrCat("no field '", field, "'; there are ", fields)); }

  absl::StatusOr<job::Bandwidth> Bandwidth() const { return Named(job::ParseBandwidth(value)); }
  absl::StatusOr<job::Duration> Latency() const { return Named(job::ParseDuration(value)); }
  absl::StatusOr<job::ByteSize> Bytes() const { return Named(job::ParseByteSize(value)); }
  absl::StatusOr<double> Number(double most, double least = 0) const {
    double number = 0;
    if (absl::SimpleAtod(value, &number) && number > 0 && number >= least && number <= most) return number;
    const std::string from = least > 0 ? absl::StrFormat("of at least %g", least) : "above 0";
    return Error(absl::StrFormat("'%s' must be a number %s and at most %g", value, from, most));
  }

 private:
  template <class T>
  absl::StatusOr<T> Named(absl::StatusOr<T> parsed) const {
    if (!parsed.ok()) return Error(std::string(parsed.status().message()));
    return parsed;
  }
};

// The direction FROM->TO of a topology as a link of its own.
job::Link* DirectionOf(job::Topology& topology, const std::string& from, const std::string& to) {
  std::vector<job::Link>& links = topology.spec.links;
  for (job::Link& link : links) {
    if (link.from == from && link.to == to) {
      if (!link.symmetric) return &link;
      // The way back keeps what it has.
      job::Link back = link;
      std::swap(back.from, back.to);
      back.symmetric = false;
      link.symmetric = false;
      const size_t index = static_cast<size_t>(&link - links.data());
      const bool written_out = std::any_of(links.begin(), links.end(), [&](const job::Link& l) { return l.from == to && l.to == from; });
      if (!written_out) links.push_back(back);
      return &links[index];
    }
  }
  const auto back =
      std::find_if(links.begin(), links.end(), [&](const job::Link& link) { return link.from == to && link.to == from && link.symmetric; });
  if (back == links.end()) return nullptr;
  job::Link own = *back;
  std::swap(own.from, own.to);
  own.symmetric = false;
  back->symmetric = false;
  links.push_back(own);
  return &links.back();
}

std::vector<std::string> LinkNames(const Hardware& hardware) {
  std::vector<std::string> names;
  const auto add = [&](const std::string& from, const std::string& to) { names.push_back(absl::StrCat(from, "->", to)); };
  if (hardware.topology) {
    for (const job::Link& link : hardware.topology->spec.links) {
      add(link.from, link.to);
      if (link.symmetric) add(link.to, link.from);
    }
  } else {
    for (const wire::MeasuredLink& link : hardware.measured.links) add(link.src, link.dst);
  }
  return names;
}

absl::Status NoLink(const Edit& edit, const Hardware& hardware, const std::string& from, const std::string& to) {
  return edit.Error(absl::StrCat("no link ", from, "->", to, "; ", List(absl::StrCat(from, "->", to), LinkNames(hardware))));
}

absl::Status EditTopologyLink(const Edit& edit, const std::string& from, const std::string& to, Hardware& hardware) {
  job::Link* const link = DirectionOf(*hardware.topology, from, to);
  if (link == nullptr) return NoLink(edit, hardware, from, to);
  if (edit.field == "bandwidth") {
    FUSIONLLM_ASSIGN_OR_RETURN(link->bandwidth, edit.Bandwidth());
  } else if (edit.field == "latency") {
    FUSIONLLM_ASSIGN_OR_RETURN(link->latency, edit.Latency());
  } else {
    return edit.NoField("bandwidth, latency, duplex");
  }
  return absl::OkStatus();
}

absl::Status EditMeasuredLink(const Edit& edit, const std::string& from, const std::string& to, Hardware& hardware) {
  std::vector<wire::MeasuredLink>& links = hardware.measured.links;
  std::map<std::string, std::string> site_of;
  for (const wire::DeviceProfile& device : hardware.measured.devices) site_of[device.name] = device.site;
  const auto is = [&](const std::string& device, const std::string& end) { return device == end || site_of[device] == end; };
  const auto joins = [&](const wire::MeasuredLink& l, const std::string& a, const std::string& b) { return is(l.src, a) && is(l.dst, b); };
  if (std::none_of(links.begin(), links.end(), [&](const wire::MeasuredLink& l) { return joins(l, from, to); })) {
    // A direction that was not measured is like its way back.
    std::vector<wire::MeasuredLink> own;
    for (const wire::MeasuredLink& link : links) {
      if (!joins(link, to, from)) continue;
      own.push_back(link);
      std::swap(own.back().src, own.back().dst);
    }
    if (own.empty()) return NoLink(edit, hardware, from, to);
    links.insert(links.end(), own.begin(), own.end());
  }
  for (wire::MeasuredLink& link : links) {
    if (!joins(link, from, to)) continue;
    if (edit.field == "bandwidth") {
      FUSIONLLM_ASSIGN_OR_RETURN(const job::Bandwidth bandwidth, edit.Bandwidth());
      link.bandwidth_bytes_per_second = bandwidth.bytes_per_s();
    } else if (edit.field == "latency") {
      FUSIONLLM_ASSIGN_OR_RETURN(const job::Duration latency, edit.Latency());
      link.rtt_seconds = 2 * latency.seconds();
    } else {
      return edit.NoField("bandwidth, latency (of measured links)");
    }
  }
  return absl::OkStatus();
}

absl::Status EditLink(const Edit& edit, Hardware& hardware) {
  const bool both = absl::StrContains(edit.name, "<->");
  const size_t at = edit.name.find(both ? "<->" : "->");
  if (at == std::string::npos)
    return edit.Error("a link is FROM->TO, or FROM<->TO for both directions; quote it, '>' means something to a shell");
  const std::string from = edit.name.substr(0, at), to = edit.name.substr(at + (both ? 3 : 2));
  const auto change = hardware.topology ? EditTopologyLink : EditMeasuredLink;
  if (edit.field == "duplex" && hardware.topology) {
    if (edit.value != "half" && edit.value != "full") return edit.Error("duplex is half or full");
    for (const auto& [a, b] : {std::pair(from, to), std::pair(to, from)}) {
      if (DirectionOf(*hardware.topology, a, b) == nullptr) return NoLink(edit, hardware, a, b);
    }
    if (edit.value == "half") hardware.half_duplex.emplace_back(from, to);
    return absl::OkStatus();
  }
  FUSIONLLM_RETURN_IF_ERROR(change(edit, from, to, hardware));
  return both ? change(edit, to, from, hardware) : absl::OkStatus();
}

absl::Status EditDevice(const Edit& edit, Hardware& hardware) {
  if (const absl::Status known = CheckDeviceName(hardware, edit.name); !known.ok()) return edit.Error(known.message());
  if (edit.field.empty()) {
    if (edit.value != "absent") return edit.Error("a device is absent, or has computeScale, memory or straggler");
    hardware.absent.push_back(edit.name);
    return absl::OkStatus();
  }
  if (edit.field == "straggler") {
    FUSIONLLM_ASSIGN_OR_RETURN(hardware.slowed[edit.name], edit.Number(1000));
    return absl::OkStatus();
  }
  const auto set = [&](double& scale, auto&& set_memory) -> absl::Status {
    if (edit.field == "computeScale") {
      FUSIONLLM_ASSIGN_OR_RETURN(scale, edit.Number(1, 1e-6));
    } else if (edit.field == "memory") {
      FUSIONLLM_ASSIGN_OR_RETURN(const job::ByteSize bytes, edit.Bytes());
      set_memory(bytes);
    } else {
      return edit.NoField("computeScale, memory, straggler");
    }
    return absl::OkStatus();
  };
  if (!hardware.topology) {
    for (wire::DeviceProfile& device : hardware.measured.devices) {
      if (device.name == edit.name) return set(device.compute_scale, [&](job::ByteSize bytes) { device.memory_bytes = bytes.bytes; });
    }
    return absl::OkStatus();
  }
  for (job::Site& site : hardware.topology->spec.sites) {
    for (job::Device& device : site.devices) {
      if (device.name == edit.name) return set(device.compute_scale, [&](job::ByteSize bytes) { device.memory = bytes; });
    }
  }
  return absl::OkStatus();
}

absl::Status EditSite(const Edit& edit, bool uplink, Hardware& hardware) {
  if (!hardware.topology) return edit.Error("sites and uplinks are those of a topology, and there is none");
  job::TopologySpec& spec = hardware.topology->spec;
  std::vector<std::string> names;
  for (const job::Site& site : spec.sites) names.push_back(site.name);
  const auto site = std::find_if(spec.sites.begin(), spec.sites.end(), [&](const job::Site& s) { return s.name == edit.name; });
  if (site == spec.sites.end()) return edit.Error(absl::StrCat("no site '", edit.name, "'; ", List(edit.name, names)));
  if (uplink) {
    if (edit.field != "egress" && edit.field != "ingress") return edit.NoField("egress, ingress");
    auto found = std::find_if(spec.shared_uplinks.begin(), spec.shared_uplinks.end(),
                              [&](const job::SharedUplink& other) { return other.site == edit.name; });
    if (found == spec.shared_uplinks.end()) found = spec.shared_uplinks.insert(found, {.site = edit.name});
    FUSIONLLM_ASSIGN_OR_RETURN((edit.field == "egress" ? found->egress : found->ingress), edit.Bandwidth());
    return absl::OkStatus();
  }
  if (edit.field == "bandwidth") {
    FUSIONLLM_ASSIGN_OR_RETURN(site->internal.bandwidth, edit.Bandwidth());
  } else if (edit.field == "latency") {
    FUSIONLLM_ASSIGN_OR_RETURN(site->internal.latency, edit.Latency());
  } else {
    return edit.NoField("bandwidth, latency");
  }
  return absl::OkStatus();
}

absl::Status Apply(const std::string& text, WhatIfScenario& changed) {
  Edit edit{.text = text};
  const size_t equals = text.find('=');
  if (equals == std::string::npos) return edit.Error("KEY=VALUE is wanted; quote it, '>' means something to a shell");
  const std::string key = text.substr(0, equals);
  edit.value = text.substr(equals + 1);
  if (absl::StartsWith(key, "spec.")) {
    changed.overrides.push_back(text);
    return absl::OkStatus();
  }
  if (key == "schedule") {
    const auto parsed_schedule = ParseSchedule(edit.value);
    if (!parsed_schedule.ok()) return edit.Error(std::string(parsed_schedule.status().message()));
    changed.schedule = *parsed_schedule;
    return absl::OkStatus();
  }
  const size_t colon = key.find(':');
  const std::string kind = key.substr(0, colon);
  edit.name = colon == std::string::npos ? "" : key.substr(colon + 1);
  // Names may have dots, fields have none.
  const size_t dot = edit.name.rfind('.');
  const bool absent = kind == "device" && edit.value == "absent";
  if (dot != std::string::npos && !absent) {
    edit.field = edit.name.substr(dot + 1);
    edit.name.resize(dot);
  }
  if (kind == "link") return EditLink(edit, changed.hardware);
  if (kind == "device") return EditDevice(edit, changed.hardware);
  if (kind == "site" || kind == "uplink") return EditSite(edit, kind == "uplink", changed.hardware);
  return edit.Error(absl::StrCat("no key '", key,
                                 "'; there are link:FROM->TO.FIELD, device:NAME.FIELD, site:NAME.FIELD, uplink:SITE.FIELD, "
                                 "spec.FIELD and schedule"));
}

// At commas outside brackets: values of the job may have their own.
std::vector<std::string> Split(absl::string_view text) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (const char c : text) {
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
    if (c == ',' && depth <= 0) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  for (std::string& part : parts) part = std::string(absl::StripAsciiWhitespace(part));
  return parts;
}

// The way back passes the resource of the way there, so that they take turns.
absl::Status TakeTurns(const std::string& from, const std::string& to, Network& network) {
  const auto find = [&](const std::string& a, const std::string& b) {
    const std::string name = absl::StrCat("link:", a, "->", b);
    const auto found = std::find_if(network.resources.begin(), network.resources.end(),
                                    [&](const scheduler::SharedResource& resource) { return resource.name == name; });
    return static_cast<int>(found - network.resources.begin());
  };
  const int there = find(from, to), back = find(to, from), count = static_cast<int>(network.resources.size());
  if (there == count || back == count) return absl::OkStatus();  // no pair of devices passes it
  if (network.resources[there].bytes_per_s != network.resources[back].bytes_per_s) {
    return absl::InvalidArgumentError(absl::StrFormat("link %s<->%s: half duplex needs the same bandwidth in both directions", from, to));
  }
  network.resources[there].name = absl::StrCat("link:", from, "<->", to);
  const auto redirect = [&](auto& links) {
    for (auto& link : links) std::replace(link.resources.begin(), link.resources.end(), back, there);
  };
  redirect(network.links);
  redirect(network.site_links);
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckDeviceName(const Hardware& hardware, const std::string& name) {
  const std::vector<std::string> names = DeviceNames(hardware);
  if (std::find(names.begin(), names.end(), name) != names.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("no device '", name, "'; ", List(name, names)));
}

std::vector<std::string> DeviceNames(const Hardware& hardware) {
  std::vector<std::string> names;
  if (!hardware.topology) {
    for (const wire::DeviceProfile& device : hardware.measured.devices) names.push_back(device.name);
    return names;
  }
  for (const job::Site& site : hardware.topology->spec.sites) {
    for (const job::Device& device : site.devices) names.push_back(device.name);
  }
  return names;
}

absl::StatusOr<Profiles> ProfilesOf(const Hardware& hardware, job::Precision precision) {
  Profiles profiles;
  if (hardware.topology) {
    FUSIONLLM_ASSIGN_OR_RETURN(profiles, ProfilesFromTopology(*hardware.topology, hardware.measured.devices, hardware.machine_memory_bytes,
                                                              hardware.arithmetic.value_or(ArithmeticOf(precision))));
  } else {
    profiles = ProfilesFromDocument(hardware.measured);
  }
  for (const auto& [from, to] : hardware.half_duplex) FUSIONLLM_RETURN_IF_ERROR(TakeTurns(from, to, profiles.network));
  for (wire::DeviceProfile& device : profiles.devices) {
    const auto slowed = hardware.slowed.find(device.name);
    if (slowed != hardware.slowed.end()) device.compute_scale /= slowed->second;
  }
  return profiles;
}

std::vector<std::string> ScheduleNames() {
  std::vector<std::string> names;
  for (const schedule::PipelineSchedule& schedule : schedule::All()) names.emplace_back(schedule.name());
  for (const auto& [name, variant] : kVariants) names.emplace_back(name);
  return names;
}

absl::StatusOr<ScheduleRequest> ParseSchedule(absl::string_view text) {
  if (const auto schedule = schedule::Find(text); schedule.has_value()) return ScheduleRequest{.schedule = schedule};
  for (const auto& [name, variant] : kVariants) {
    if (text == name) return ScheduleRequest{.schedule = schedule::k1F1B, .variant = variant};
  }
  absl::string_view stages = text;
  ScheduleRequest interleaved{.schedule = schedule::k1F1B, .variant = ScheduleVariant::kInterleaved};
  if (absl::ConsumePrefix(&stages, "interleaved:") && absl::SimpleAtoi(stages, &interleaved.virtual_stages)) {
    FUSIONLLM_RETURN_IF_ERROR(scheduler::CheckVirtualStages(interleaved.virtual_stages));
    return interleaved;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("no schedule '", text, "'; there are ", absl::StrJoin(ScheduleNames(), ", "), " and interleaved:VIRTUAL_STAGES"));
}

absl::StatusOr<WhatIfScenario> ApplyWhatIf(absl::string_view text, const Hardware& hardware) {
  WhatIfScenario changed{.hardware = hardware};
  for (const std::string& part : Split(text)) FUSIONLLM_RETURN_IF_ERROR(Apply(part, changed));
  return changed;
}

}  // namespace fusionllm::planning
