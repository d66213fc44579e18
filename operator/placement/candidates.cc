#include "operator/placement/candidates.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/status_macros.h"

namespace fusionllm::op::placement {
namespace {

bool AsksForDevices(const cache::PodRequirements& requirements) {
  return std::any_of(requirements.requests.begin(), requirements.requests.end(),
                     [](const auto& entry) { return entry.first.find('/') != std::string::npos; });
}

// Without accelerators a device is a node.
int64_t DevicesOf(const cache::PodRequirements& requirements, const cache::FreeCapacity& room) {
  return AsksForDevices(requirements) ? room.pods : room.nodes;
}

// What accelerator a pod with those requirements has on a node; "": none.
std::string ProductOn(const cache::NodeCapacity& node, const cache::PodRequirements& requirements, const manifests::DeviceKind& hardware) {
  for (const auto& [resource, amount] : requirements.requests) {
    if (amount > 0 && resource.find('/') != std::string::npos) return cache::ProductOf(node, resource);
  }
  const auto label = node.labels.find(hardware.label);
  return label == node.labels.end() ? "" : label->second;
}

// Of the nodes with room; without any, of all: that more of them are made is all that is known.
std::map<std::string, int64_t> Products(const cache::PodRequirements& requirements, const manifests::DeviceKind& hardware,
                                        const cache::ClusterCapacity& capacity, const cache::FreeCapacity& room) {
  std::map<std::string, int64_t> products;
  for (const auto& [node, pods] : room.by_node) products[ProductOn(capacity.nodes[node], requirements, hardware)] += pods;
  if (!products.empty()) return products;
  for (const cache::NodeCapacity& node : capacity.nodes) products[ProductOn(node, requirements, hardware)] = 0;
  if (!AsksForDevices(requirements) && hardware.label.empty()) products[""] = 0;
  return products;
}

std::string AsText(const cache::PodRequirements& requirements) {
  kube::ResourceList resources = requirements.requests;
  resources.erase(kube::kPodCount);
  return kube::ResourceListText(resources);
}

class Surveyor {
 public:
  Surveyor(const CandidatesRequest& request, Reservations* reservations)
      : request_(request), spec_(request.job->spec), reservations_(reservations) {}

  ClusterCandidate Look(const cache::ClusterFacts& facts, const cache::Member* member) {
    ClusterCandidate candidate{
        .name = facts.name, .labels = facts.labels, .named = request_.named.contains(facts.name), .closed = Closed(facts, member)};
    if (!candidate.closed.empty()) return candidate;
    const std::shared_ptr<const cache::ClusterCapacity> capacity = member->Capacity();
    const auto hardware = HardwareIn(capacity.get(), spec_.placement);
    if (!hardware.ok()) {
      candidate.closed = std::string(hardware.status().message());
      return candidate;
    }
    const auto requirements = ExecutorRequirements(request_.identity, *request_.job, *request_.images, *hardware);
    if (!requirements.ok()) {
      candidate.closed = absl::StrCat("cannot be asked: ", std::string(requirements.status().message()));
      return candidate;
    }
    candidate.each = requirements->requests;
    if (capacity == nullptr) {
      if (!AsksForDevices(*requirements)) candidate.products[""] = 0;
      return candidate;
    }
    const cache::FreeCapacity room = cache::FreeCapacityFor(*requirements, *capacity, request_.identity.uid, Reserved(facts, *capacity));
    candidate.devices = DevicesOf(*requirements, room);
    candidate.products = Products(*requirements, *hardware, *capacity, facts.on_demand ? cache::FreeCapacity() : room);
    if (facts.on_demand) return candidate;
    candidate.room = room.pods;
    candidate.shortage = absl::StrCat("each asks for ", AsText(*requirements), "; ", room.shortage);
    return candidate;
  }

 private:
  std::string Closed(const cache::ClusterFacts& facts, const cache::Member* member) const {
    if (facts.leaving) return "is being removed";
    if (member == nullptr || !member->reachable()) return "cannot be reached";
    const auto avoided = request_.avoided.find(facts.name);
    if (avoided != request_.avoided.end()) return avoided->second;
    if (manifests::GraphIsAmongData(spec_) && !manifests::HoldsData(spec_.data, facts.name)) {
      return "has no spec.model.graph.file: it is not in spec.data.clusters";
    }
    return "";
  }

  std::vector<cache::SharedResourceList> Reserved(const cache::ClusterFacts& facts, const cache::ClusterCapacity& capacity) const {
    std::vector<cache::SharedResourceList> reserved;
    if (reservations_ != nullptr) {
      reserved = reservations_->ReservedByOthers(facts.name, request_.identity.uid, capacity.pods_of_job, request_.now);
    }
    if (!facts.local) return reserved;
    // Its own broker comes first.
    if (const auto requirements = BrokerRequirements(request_); requirements.ok())
      reserved.push_back(std::make_shared<const kube::ResourceList>(requirements->requests));
    return reserved;
  }

  const CandidatesRequest& request_;
  const job::Spec& spec_;
  Reservations* const reservations_;
};

bool AsksForHardware(const job::Placement& placement) { return placement.device != "any" && placement.device != "cpu"; }

}  // namespace

std::vector<ClusterCandidate> Candidates(const CandidatesRequest& request, const cache::Member& hub, const cache::Members& members,
                                         Reservations* reservations) {
  std::map<std::string, std::shared_ptr<cache::Member>> remote;
  for (const std::shared_ptr<cache::Member>& member : members.Remote()) remote[member->name()] = member;
  std::vector<cache::ClusterFacts> all = members.Clusters();
  std::sort(all.begin(), all.end(),
            [](const cache::ClusterFacts& a, const cache::ClusterFacts& b) { return a.local != b.local ? a.local : a.name < b.name; });
  Surveyor surveyor(request, reservations);
  std::vector<ClusterCandidate> candidates;
  for (const cache::ClusterFacts& facts : all) {
    const auto at = remote.find(facts.name);
    candidates.push_back(surveyor.Look(facts, facts.local ? &hub : at == remote.end() ? nullptr : at->second.get()));
  }
  return candidates;
}

std::string BrokerShortage(const CandidatesRequest& request, const cache::Member& hub, const cache::Members& members,
                           Reservations* reservations) {
  const std::shared_ptr<const cache::ClusterCapacity> capacity = hub.Capacity();
  if (capacity == nullptr) return "";
  std::string name;
  bool on_demand = request.hub_on_demand;
  members.ForEachCluster([&](const cache::ClusterFacts& facts) {
    if (!facts.local) return;
    name = facts.name;
    on_demand = facts.on_demand;
  });
  // What is wrong with its template is reported when the API server is asked about it.
  const absl::StatusOr<cache::PodRequirements> requirements = BrokerRequirements(request);
  if (on_demand || !requirements.ok()) return "";
  std::vector<cache::SharedResourceList> reserved;
  if (reservations != nullptr) reserved = reservations->ReservedByOthers(name, request.identity.uid, capacity->pods_of_job, request.now);
  const cache::FreeCapacity room = cache::FreeCapacityFor(*requirements, *capacity, request.identity.uid, reserved);
  if (room.pods > 0) return "";
  return absl::StrCat("the broker finds no room on the hub", name.empty() ? "" : absl::StrCat(", ", name), ": it asks for ",
                      AsText(*requirements), "; ", room.shortage);
}

absl::StatusOr<cache::PodRequirements> BrokerRequirements(const CandidatesRequest& request) {
  FUSIONLLM_ASSIGN_OR_RETURN(const nlohmann::json pod, manifests::BrokerPod(request.identity, *request.job, {}, *request.images, {}));
  return cache::RequirementsOfPod(pod);
}

absl::StatusOr<cache::PodRequirements> ExecutorRequirements(const manifests::JobIdentity& identity, const job::FusionJob& job,
                                                            const manifests::Images& images, const manifests::DeviceKind& hardware) {
  FUSIONLLM_ASSIGN_OR_RETURN(const nlohmann::json pod, manifests::ExecutorPod(identity, job, {}, 0, {"broker:1"}, images, {}, hardware));
  return cache::RequirementsOfPod(pod);
}

absl::StatusOr<manifests::DeviceKind> HardwareIn(const cache::Member& member, const job::Placement& placement) {
  return HardwareIn(AsksForHardware(placement) ? member.Capacity().get() : nullptr, placement);
}

absl::StatusOr<manifests::DeviceKind> HardwareIn(const cache::ClusterCapacity* capacity, const job::Placement& placement) {
  if (!AsksForHardware(placement)) return manifests::DeviceKind();
  if (capacity == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("does not tell what its nodes have, and spec.placement.device asks for ", placement.device));
  }
  const int64_t min_bytes = placement.min_memory.has_value() ? placement.min_memory->bytes : 0;
  manifests::DeviceKind kind = cache::FindDevice(placement.device, min_bytes, *capacity);
  if (!kind.values.empty()) return kind;
  const std::vector<std::string> names = cache::DeviceNames(*capacity);
  return absl::FailedPreconditionError(absl::StrCat(
      "has no device ", placement.device, min_bytes > 0 ? absl::StrCat(" with ", kube::QuantityText(kube::kMemory, min_bytes)) : "",
      "; its nodes have: ", names.empty() ? "none that are labelled" : absl::StrJoin(names, ", ")));
}

manifests::DeviceKind HardwareOf(const job::Placement& placement, const cache::Member& hub, const cache::Members& members) {
  const auto look = [&](const cache::Member& member) {
    absl::StatusOr<manifests::DeviceKind> kind = HardwareIn(member, placement);
    return kind.ok() ? *std::move(kind) : manifests::DeviceKind();
  };
  manifests::DeviceKind kind = look(hub);
  for (const std::shared_ptr<cache::Member>& member : members.Remote()) {
    if (kind.resource.empty()) kind = look(*member);
  }
  return kind;
}

}  // namespace fusionllm::op::placement
