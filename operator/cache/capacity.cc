#include "operator/cache/capacity.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace fusionllm::op::cache {
namespace {

// What tells the kind of device of a node. The last is for administrators, of devices that no device plugin labels.
struct KindLabel {
  const char* label;
  const char* resource;
  const char* memory_label;  // in MiB
};
constexpr KindLabel kKindLabels[] = {
    {"nvidia.com/gpu.product", "nvidia.com/gpu", "nvidia.com/gpu.memory"},
    {"amd.com/gpu.product-name", "amd.com/gpu", ""},
    {"fusionllm.io/device", "", ""},
};
constexpr int64_t kMebibyte = int64_t{1} << 20;

std::optional<std::string> Label(const NodeCapacity& node, const std::string& key) {
  const auto at = node.labels.find(key);
  return at == node.labels.end() ? std::nullopt : std::optional(at->second);
}

bool AllHold(const std::vector<LabelRequirement>& requirements, const NodeCapacity& node) {
  return std::all_of(requirements.begin(), requirements.end(), [&](const auto& one) { return Holds(one, Label(node, one.key)); });
}

bool TermHolds(const NodeTerm& term, const NodeCapacity& node) {
  if (term.labels.empty() && term.fields.empty()) return false;  // as Kubernetes has it
  const auto field_holds = [&](const LabelRequirement& one) { return one.key == "metadata.name" && Holds(one, node.name); };
  return AllHold(term.labels, node) && std::all_of(term.fields.begin(), term.fields.end(), field_holds);
}

bool Tolerates(const PodRequirements& requirements, const kube::Taint& taint) {
  return std::any_of(requirements.tolerations.begin(), requirements.tolerations.end(), [&](const Toleration& one) {
    if (!one.effect.empty() && one.effect != taint.effect) return false;
    if (one.op == "Exists") return one.key.empty() || one.key == taint.key;
    return one.key == taint.key && one.value == taint.value && (one.op.empty() || one.op == "Equal");
  });
}

constexpr char kNotReady[] = "not ready", kCordoned[] = "cordoned";
constexpr size_t kMaxNodesNamed = 3;

std::string FirstOf(const std::vector<std::string>& nodes) {
  const size_t named = std::min(nodes.size(), kMaxNodesNamed);
  return absl::StrCat(absl::StrJoin(nodes.begin(), nodes.begin() + static_cast<ptrdiff_t>(named), ", "),
                      nodes.size() > named ? " ..." : "");
}

// Nothing: pods with those requirements may go there, as far as there is room.
std::optional<std::string> Barrier(const PodRequirements& requirements, const NodeCapacity& node) {
  if (!node.ready) return kNotReady;
  if (node.unschedulable) return kCordoned;
  if (!requirements.node_name.empty() && requirements.node_name != node.name) return "not the one of spec.nodeName";
  for (const LabelRequirement& one : requirements.node_selector) {
    if (Holds(one, Label(node, one.key))) continue;
    return absl::StrCat("that the node selector ", one.key, "=", absl::StrJoin(one.values, ","), " leaves out");
  }
  if (requirements.has_affinity &&
      std::none_of(requirements.affinity.begin(), requirements.affinity.end(), [&](const auto& t) { return TermHolds(t, node); })) {
    return "that the node affinity leaves out";
  }
  for (const kube::Taint& taint : node.taints) {
    if (taint.effect != "PreferNoSchedule" && !Tolerates(requirements, taint)) return absl::StrCat("with the taint ", taint.key);
  }
  return std::nullopt;
}

using Free = kube::ResourceList;

bool IsOf(const JobRefPtr& job, const std::string& uid) { return job != nullptr && job->uid == uid; }

// On each node, when the pods of that job are gone.
std::vector<Free> FreeWithout(const std::string& job_uid, const ClusterCapacity& cluster) {
  std::vector<Free> all;
  for (const NodeCapacity& node : cluster.nodes) {
    Free& free = all.emplace_back(node.allocatable);
    for (const auto& [resource, taken] : node.taken) free[resource] -= taken;
  }
  for (const PlacedPod& pod : cluster.of_jobs) {
    if (IsOf(pod.job, job_uid)) kube::AddResourceList(*pod.requests, all[pod.node]);
  }
  return all;
}

// How many times `requests` fit, and of what there is too little for one more.
int64_t Times(const kube::ResourceList& requests, const Free& free, std::string& scarce) {
  int64_t times = std::numeric_limits<int64_t>::max();
  for (const auto& [resource, amount] : requests) {
    if (amount <= 0) continue;
    const int64_t fit = std::max<int64_t>(0, kube::QuantityOf(free, resource)) / amount;
    if (fit >= times) continue;
    times = fit;
    scarce = resource;
  }
  return times;
}

// Where the pod would go: first fit, which need not be what the cluster does; as much is taken either way.
void TakeSomewhere(const kube::ResourceList& requests, std::vector<Free>& nodes) {
  std::string scarce;
  const auto fits = [&](const Free& free) { return Times(requests, free, scarce) > 0; };
  const auto at = std::find_if(nodes.begin(), nodes.end(), fits);
  if (at == nodes.end()) return;
  for (const auto& [resource, amount] : requests) (*at)[resource] -= amount;
}

std::string Counted(int64_t count, const char* noun) { return absl::StrCat(count, " ", noun, count == 1 ? "" : "s"); }

std::vector<std::string> Words(const std::string& text) {
  return absl::StrSplit(absl::AsciiStrToLower(text), absl::ByAnyChar("-_. "), absl::SkipEmpty());
}

// The words of `wanted`, one after the other, among those of `name`.
bool Names(const std::vector<std::string>& wanted, const std::string& name) {
  const std::vector<std::string> words = Words(name);
  return !wanted.empty() && std::search(words.begin(), words.end(), wanted.begin(), wanted.end()) != words.end();
}

}  // namespace

FreeCapacity FreeCapacityFor(const PodRequirements& requirements, const ClusterCapacity& cluster, const std::string& job_uid,
                             const std::vector<SharedResourceList>& reserved) {
  std::map<std::string, std::vector<std::string>> barriers;  // and the nodes that have them
  std::vector<Free> free = FreeWithout(job_uid, cluster), open;
  std::vector<size_t> open_nodes;
  for (size_t i = 0; i < free.size(); ++i) {
    if (const auto barrier = Barrier(requirements, cluster.nodes[i])) {
      barriers[*barrier].push_back(cluster.nodes[i].name);
    } else {
      open.push_back(std::move(free[i]));
      open_nodes.push_back(i);
    }
  }
  for (const WaitingPod& pod : cluster.waiting) {
    if (!IsOf(pod.job, job_uid)) TakeSomewhere(*pod.requests, open);
  }
  for (const auto& requests : reserved) TakeSomewhere(*requests, open);

  FreeCapacity room;
  std::map<std::string, std::pair<int64_t, int64_t>> scarcities;  // by resource: on how many nodes, most that is free on one of them
  for (size_t i = 0; i < open.size(); ++i) {
    const Free& left_there = open[i];
    std::string scarce;
    const int64_t times = Times(requirements.requests, left_there, scarce);
    room.pods += times;
    if (times > 0) {
      ++room.nodes;
      room.by_node.push_back({open_nodes[i], times});
    }
    auto& [nodes, most] = scarcities[scarce];
    int64_t left = kube::QuantityOf(left_there, scarce);
    const int64_t each = kube::QuantityOf(requirements.requests, scarce);
    if (times > 0) left -= times * each;
    most = nodes == 0 ? left : std::max(most, left);
    ++nodes;
  }
  std::vector<std::string> parts;
  for (const auto& [barrier, nodes] : barriers) {
    // What somebody does about a node begins with its name.
    const bool named = barrier == kNotReady || barrier == kCordoned;
    parts.push_back(absl::StrCat(nodes.size(), " ", barrier, named ? absl::StrCat(" (", FirstOf(nodes), ")") : ""));
  }
  for (const auto& [resource, entry] : scarcities) {
    parts.push_back(absl::StrCat(entry.first, " with too little ", resource,
                                 " (most free: ", kube::QuantityText(resource, std::max<int64_t>(0, entry.second)), ")"));
  }
  const auto nodes = static_cast<int64_t>(cluster.nodes.size());
  room.shortage = nodes == 0 ? "no nodes" : absl::StrCat(Counted(nodes, "node"), ": ", absl::StrJoin(parts, ", "));
  return room;
}

std::string UnavailableNodes(const ClusterCapacity& cluster) {
  std::vector<std::string> not_ready, cordoned, parts;
  for (const NodeCapacity& node : cluster.nodes) {
    if (!node.ready) {
      not_ready.push_back(node.name);
    } else if (node.unschedulable) {
      cordoned.push_back(node.name);
    }
  }
  if (!not_ready.empty()) parts.push_back(absl::StrCat(kNotReady, ": ", FirstOf(not_ready)));
  if (!cordoned.empty()) parts.push_back(absl::StrCat(kCordoned, ": ", FirstOf(cordoned)));
  return parts.empty() ? "" : absl::StrCat(" (", absl::StrJoin(parts, "; "), ")");
}

manifests::DeviceKind FindDevice(const std::string& device, int64_t min_memory_bytes, const ClusterCapacity& cluster) {
  const std::vector<std::string> wanted = Words(device);
  const int64_t min_mebibytes = (min_memory_bytes + kMebibyte - 1) / kMebibyte;
  for (const KindLabel& kind : kKindLabels) {
    std::set<std::string> values;
    bool bounded = false;  // some node says how much memory its devices have
    for (const NodeCapacity& node : cluster.nodes) {
      const auto value = Label(node, kind.label);
      if (!value.has_value() || !Names(wanted, *value)) continue;
      const auto memory = Label(node, kind.memory_label);
      bounded = bounded || (memory.has_value() && min_mebibytes > 0);
      const LabelRequirement enough{kind.memory_label, "Gt", {absl::StrCat(min_mebibytes - 1)}};
      if (!memory.has_value() || min_mebibytes == 0 || Holds(enough, memory)) values.insert(*value);
    }
    if (values.empty()) continue;
    return {kind.label, {values.begin(), values.end()}, kind.resource, bounded ? kind.memory_label : "", min_mebibytes};
  }
  return {};
}

std::string ProductOf(const NodeCapacity& node, const std::string& resource) {
  for (const KindLabel& kind : kKindLabels) {
    if (kind.resource == resource) return Label(node, kind.label).value_or(resource);
  }
  return resource;
}

std::vector<std::string> DeviceNames(const ClusterCapacity& cluster) {
  std::set<std::string> names;
  for (const NodeCapacity& node : cluster.nodes) {
    for (const KindLabel& kind : kKindLabels) {
      if (const auto value = Label(node, kind.label)) names.insert(*value);
    }
  }
  return {names.begin(), names.end()};
}

}  // namespace fusionllm::op::cache
