#include "lib/planning/pin_check.h"

#include <algorithm>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "lib/base/nearest_name.h"
#include "lib/scheduler/problem.h"

namespace fusionllm::planning {
namespace {

constexpr size_t kMaxFindings = 20;
constexpr size_t kMaxListed = 12;     // names in a message
constexpr size_t kMaxGuesses = 4096;  // names that a guess is made among

struct KnownDevice {
  std::string name, site;
  bool spare = false;
};

std::vector<KnownDevice> KnownDevices(const Hardware& hardware) {
  std::vector<KnownDevice> devices;
  if (!hardware.topology) {
    for (const wire::DeviceProfile& device : hardware.measured.devices) devices.push_back({device.name, device.site, device.spare});
    return devices;
  }
  for (const job::Site& site : hardware.topology->spec.sites) {
    for (const job::Device& device : site.devices) devices.push_back({device.name, site.name, device.role == job::Role::kSpare});
  }
  return devices;
}

std::string Listed(std::vector<std::string> names) {
  const size_t all = names.size();
  names.resize(std::min(all, kMaxListed));
  return absl::StrCat(absl::StrJoin(names, ", "), all > kMaxListed ? absl::StrCat(" and ", all - kMaxListed, " more") : "");
}

std::string DidYouMean(absl::string_view text, std::vector<std::string> names) {
  names.resize(std::min(names.size(), kMaxGuesses));
  const std::string near = base::NearestNameOrPart(text, names);
  return near.empty() ? "" : absl::StrCat("did you mean ", near, "? ");
}

std::string NoSuchDevice(const std::string& wanted, const std::vector<KnownDevice>& devices, absl::string_view place) {
  std::vector<std::string> usable, of_site;
  for (const KnownDevice& device : devices) {
    if (device.spare) continue;
    usable.push_back(device.name);
    if (device.site == wanted) of_site.push_back(device.name);
  }
  if (!of_site.empty()) return absl::StrCat(wanted, " is a site of ", place, "; a pin names one device of it: ", Listed(of_site));
  return absl::StrCat("no device of ", place, " is named ", wanted, "; ", DidYouMean(wanted, usable),
                      usable.size() == 1 ? "there is " : "there are ", Listed(usable));
}

// Those that pins may name, with every group that a pattern of one * may name: "block.0.attn" gives "block.0.*" and "block.*", too.
struct OpNames {
  std::vector<std::string> ops, groups;
};

OpNames OpNamesOf(const workload::Workload& workload) {
  OpNames names;
  std::set<std::string> groups;
  for (opdag::OpId id = 0; id < workload.training.forward_ops; ++id) {
    const opdag::Op& op = workload.training.graph.op(id);
    if (op.kind == opdag::OpKind::kPlaceholder) continue;
    names.ops.push_back(op.name);
    for (size_t dot = op.name.find('.'); dot != std::string::npos && groups.size() < kMaxGuesses; dot = op.name.find('.', dot + 1)) {
      groups.insert(absl::StrCat(op.name.substr(0, dot), ".*"));
    }
  }
  names.groups.assign(groups.begin(), groups.end());
  return names;
}

bool MatchesAny(const std::string& pattern, const OpNames& names) {
  return std::any_of(names.ops.begin(), names.ops.end(), [&](const std::string& op) { return scheduler::MatchesGlob(pattern, op); });
}

std::string NoSuchOp(const std::string& pattern, const OpNames& names) {
  const bool glob = pattern.find_first_of("*?") != std::string::npos;
  std::string near = DidYouMean(pattern, glob ? names.groups : names.ops);
  if (near.empty() && !glob) near = DidYouMean(pattern, names.groups);
  return absl::StrCat("no op of the model matches '", pattern, "'; ", near, "the ops are ", Listed(names.ops),
                      " (fusionctl graph JOB -o model.dag writes them all)");
}

// Findings as "FIELD: what".
class Findings {
 public:
  void Add(size_t pin, absl::string_view field, absl::string_view what) {
    if (lines_.size() < kMaxFindings) lines_.push_back(absl::StrFormat("spec.strategy.pins[%d]%s: %s", pin, field, what));
  }
  absl::Status Status() const { return lines_.empty() ? absl::OkStatus() : absl::InvalidArgumentError(absl::StrJoin(lines_, "\n")); }

 private:
  std::vector<std::string> lines_;
};

void CheckOps(const std::vector<job::Pin>& pins, const OpNames& names, Findings& findings) {
  for (size_t i = 0; i < pins.size(); ++i) {
    if (!MatchesAny(pins[i].ops, names)) findings.Add(i, ".ops", NoSuchOp(pins[i].ops, names));
  }
}

void CheckDevices(const std::vector<job::Pin>& pins, const std::vector<KnownDevice>& devices, absl::string_view place, Findings& findings) {
  for (size_t i = 0; i < pins.size(); ++i) {
    const auto device =
        std::find_if(devices.begin(), devices.end(), [&](const KnownDevice& known) { return known.name == pins[i].device; });
    if (device == devices.end()) {
      findings.Add(i, ".device", NoSuchDevice(pins[i].device, devices, place));
    } else if (device->spare) {
      findings.Add(i, ".device",
                   absl::StrCat(device->name, " is a spare of ", place,
                                ", which runs no stage until a device is lost: pin to another, or give it role: executor"));
    }
  }
}

// An op that two pins want on two devices.
void CheckOverlaps(const std::vector<job::Pin>& pins, const OpNames& names, Findings& findings) {
  for (size_t i = 0; i < pins.size(); ++i) {
    for (size_t before = 0; before < i; ++before) {
      if (pins[before].device == pins[i].device) continue;
      const auto both = std::find_if(names.ops.begin(), names.ops.end(), [&](const std::string& op) {
        return scheduler::MatchesGlob(pins[before].ops, op) && scheduler::MatchesGlob(pins[i].ops, op);
      });
      if (both == names.ops.end()) continue;
      findings.Add(i, "",
                   absl::StrFormat("pins op '%s' to %s, and spec.strategy.pins[%d] ('%s') pins it to %s: name each op once", *both,
                                   pins[i].device, before, pins[before].ops, pins[before].device));
      break;
    }
  }
}

}  // namespace

absl::Status CheckPinnedOps(const workload::Workload& workload) {
  const std::vector<job::Pin>& pins = workload.job.spec.strategy.pins;
  if (pins.empty()) return absl::OkStatus();
  Findings findings;
  const OpNames names = OpNamesOf(workload);
  CheckOps(pins, names, findings);
  CheckOverlaps(pins, names, findings);
  return findings.Status();
}

absl::Status CheckPins(const workload::Workload& workload, const Hardware& hardware, absl::string_view place) {
  const job::Strategy& strategy = workload.job.spec.strategy;
  if (strategy.pins.empty()) return absl::OkStatus();
  Findings findings;
  const OpNames names = OpNamesOf(workload);
  CheckDevices(strategy.pins, KnownDevices(hardware), place, findings);
  CheckOps(strategy.pins, names, findings);
  CheckOverlaps(strategy.pins, names, findings);
  return findings.Status();
}

}  // namespace fusionllm::planning
