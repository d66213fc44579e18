#include <algorithm>
#include <map>
#include <unordered_map>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "lib/base/nearest_name.h"
#include "lib/estimator/gpu_specs.h"
#include "lib/job/checks.h"
#include "lib/security/executor_name.h"

namespace fusionllm::job {
namespace {

constexpr size_t kMaxGaps = 20;
constexpr size_t kMaxListedNames = 20;
constexpr int kMaxGuesses = 20;  // no more findings than that are printed, and a guess among thousands of names takes time

struct End {
  int site = -1;
  bool device = false;
};

struct Names {
  std::unordered_map<std::string, End> ends;
  int guesses = 0;  // made so far
};

// Without the words of product lines that names of profiles leave out: "NVIDIA GeForce RTX 4090" is nvidia-rtx-4090.
std::string NearestGpu(absl::string_view wanted, const std::vector<std::string>& names) {
  std::string text = absl::AsciiStrToLower(wanted);
  absl::StrReplaceAll({{" ", "-"}, {"_", "-"}}, &text);
  absl::StrReplaceAll({{"geforce-", ""}, {"tesla-", ""}, {"quadro-", ""}}, &text);
  return base::NearestNameOrPart(text, names);
}

// All names are listed for the first that is wrong: `listed`.
void CheckProfile(const std::string& path, const Device& device, const Report& report, bool& listed) {
  if (!device.profile.has_value()) return;
  if (estimator::FindGpu(*device.profile) == nullptr) {
    const std::vector<std::string> names = estimator::GpuNames();
    const std::string near = NearestGpu(*device.profile, names);
    report({path + ".profile"},
           absl::StrCat("no GPU profile is named ", *device.profile, near.empty() ? "" : absl::StrCat("; did you mean ", near, "?"),
                        listed ? "" : absl::StrCat(" (there are ", absl::StrJoin(names, ", "), ")")));
    listed = true;
  }
  if (device.threads != 1) report({path + ".threads"}, "belongs to devices that this machine emulates, not to one with a profile");
}

// Collects all names; false when they are too many or not unique, so that nothing may be looked up by them.
bool CollectNames(const Topology& topology, const Report& report, Names& names) {
  bool unique = true;
  size_t devices = 0;
  bool executor = false;
  bool profiles_listed = false;
  std::map<std::string, const std::string*, security::CaseInsensitiveLess> known;
  const auto add = [&](const std::string& path, const std::string& name, End end) {
    names.ends.emplace(name, end);
    const auto [first, is_new] = known.emplace(name, &name);
    if (is_new) return;
    const bool same = *first->second == name;
    report({path}, absl::StrCat("the name ", name, same ? " is given twice" : absl::StrCat(" is that of ", *first->second),
                                ": sites and devices share one set of names", same ? "" : ", and case makes no difference"));
    unique = false;
  };
  for (size_t s = 0; s < topology.spec.sites.size(); ++s) {
    const Site& site = topology.spec.sites[s];
    const std::string path = absl::StrCat("spec.sites[", s, "]");
    add(path + ".name", site.name, {static_cast<int>(s), false});
    if (site.devices.empty()) report({path + ".devices"}, "must have at least one device");
    devices += site.devices.size();
    if (devices > kMaxDevices) {
      report({path + ".devices"}, absl::StrCat("there are more than ", kMaxDevices, " devices, the limit"));
      return false;
    }
    for (size_t d = 0; d < site.devices.size(); ++d) {
      const std::string device = absl::StrCat(path, ".devices[", d, "].name");
      add(device, site.devices[d].name, {static_cast<int>(s), true});
      // An executor of that name runs for it, with a certificate.
      if (const absl::Status fit = security::CheckExecutorName(site.devices[d].name); !fit.ok()) report({device}, fit.message());
      executor = executor || site.devices[d].role == Role::kExecutor;
      CheckProfile(absl::StrCat(path, ".devices[", d, "]"), site.devices[d], report, profiles_listed);
    }
  }
  if (topology.spec.sites.empty()) {
    report({"spec.sites"}, "must have at least one site");
  } else if (devices > 0 && !executor) {
    report({"spec.sites"}, "every device is a spare: at least one must have role executor");
  }
  return unique;
}

const End* Lookup(Names& names, const std::string& path, const std::string& name, const Report& report) {
  const auto found = names.ends.find(name);
  if (found != names.ends.end()) return &found->second;
  std::vector<std::string> known;
  if (++names.guesses <= kMaxGuesses) {
    for (const auto& [candidate, end] : names.ends) known.push_back(candidate);
    std::sort(known.begin(), known.end());
  }
  const std::string near = base::NearestName(name, known);
  std::string help = near.empty() ? "" : absl::StrCat("; did you mean ", near, "?");
  if (near.empty() && !known.empty() && known.size() <= kMaxListedNames) {
    help = absl::StrCat("; there are ", absl::StrJoin(known, ", "));
  }
  report({path}, absl::StrCat("no site or device is named ", name, help));
  return nullptr;
}

bool CheckLinks(const Topology& topology, Names& names, const Report& report) {
  bool good = true;
  std::map<std::pair<std::string, std::string>, size_t> first;
  for (size_t i = 0; i < topology.spec.links.size(); ++i) {
    const Link& link = topology.spec.links[i];
    const std::string path = absl::StrCat("spec.links[", i, "]");
    const End* from = Lookup(names, path + ".from", link.from, report);
    const End* to = Lookup(names, path + ".to", link.to, report);
    const auto [found, fresh] = first.emplace(std::make_pair(link.from, link.to), i);
    if (from == nullptr || to == nullptr) {
      good = false;
    } else if (link.from == link.to) {
      report({path},
             absl::StrCat("leads from ", link.from, " to itself", from->device ? "" : ": the network inside a site is its `internal`"));
    } else if (from->site == to->site && !(from->device && to->device)) {
      report({path}, absl::StrCat("stays inside site ", topology.spec.sites[from->site].name, ": use its `internal`, or name two devices"));
    } else if (!fresh) {
      report({path}, absl::StrCat("from ", link.from, " to ", link.to, " is already given by spec.links[", found->second, "]"));
    }
  }
  return good;
}

void CheckUplinks(const Topology& topology, Names& names, const Report& report) {
  std::map<std::string, size_t> first;
  for (size_t i = 0; i < topology.spec.shared_uplinks.size(); ++i) {
    const SharedUplink& uplink = topology.spec.shared_uplinks[i];
    const std::string path = absl::StrCat("spec.sharedUplinks[", i, "]");
    const End* end = Lookup(names, path + ".site", uplink.site, report);
    if (end != nullptr && end->device) report({path + ".site"}, absl::StrCat(uplink.site, " is a device, not a site"));
    const auto [found, fresh] = first.emplace(uplink.site, i);
    if (!fresh) report({path + ".site"}, absl::StrCat(uplink.site, " is already given by spec.sharedUplinks[", found->second, "]"));
    if (!uplink.egress && !uplink.ingress) report({path}, "must have egress, ingress or both");
  }
}

}  // namespace

void CheckTopology(const Topology& topology, const Report& report) {
  Names names;
  if (!CollectNames(topology, report, names)) return;
  const bool links_known = CheckLinks(topology, names, report);
  CheckUplinks(topology, names, report);
  if (!links_known) return;  // the missing link may be the misspelt one
  for (const std::string& gap : LinkTable::Gaps(topology, kMaxGaps)) report({"spec.links"}, gap);
}

}  // namespace fusionllm::job
