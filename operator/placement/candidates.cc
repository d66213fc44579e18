#include "operator/placement/candidates.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/status_macros.h"

namespace fusionllm::op {
namespace {

bool AsksForDevices(const PodShape& shape) {
  return std::any_of(shape.requests.begin(), shape.requests.end(),
                     [](const auto& entry) { return entry.first.find('/') != std::string::npos; });
}

// Without accelerators a device is a node.
int64_t DevicesOf(const PodShape& shape, const FreeCapacity& room) { return AsksForDevices(shape) ? room.pods : room.nodes; }

// What accelerator a pod of that shape has on a node; "": none.
std::string ProductOn(const NodeCapacity& node, const PodShape& shape, const DeviceKind& hardware) {
  for (const auto& [resource, amount] : shape.requests) {
    if (amount > 0 && resource.find('/') != std::string::npos) return ProductOf(node, resource);
  }
  const auto label = node.labels.find(hardware.label);
  return label == node.labels.end() ? "" : label->second;
}

// Of the nodes with room; without any, of all: that more of them are made is all that is known.
std::map<std::string, int64_t> Products(const PodShape& shape, const DeviceKind& hardware, const ClusterCapacity& capacity,
                                        const FreeCapacity& room) {
  std::map<std::string, int64_t> products;
  for (const auto& [node, pods] : room.by_node) products[ProductOn(capacity.nodes[node], shape, hardware)] += pods;
  if (!products.empty()) return products;
  for (const NodeCapacity& node : capacity.nodes) products[ProductOn(node, shape, hardware)] = 0;
  if (!AsksForDevices(shape) && hardware.label.empty()) products[""] = 0;
  return products;
}

std::string AsText(const PodShape& shape) {
  kube::Amounts amounts = shape.requests;
  amounts.erase(kube::kPodCount);
  return kube::AmountsText(amounts);
}

class Surveyor {
 public:
  Surveyor(const CandidatesRequest& request, Reservations* reservations)
      : request_(request), spec_(request.job->spec), reservations_(reservations) {}

  ClusterCandidate Look(const ClusterFacts& facts, const Member* member) {
    ClusterCandidate candidate{
        .name = facts.name, .labels = facts.labels, .named = request_.named.contains(facts.name), .closed = Closed(facts, member)};
    if (!candidate.closed.empty()) return candidate;
    const std::shared_ptr<const ClusterCapacity> capacity = member->Capacity();
    const auto hardware = HardwareIn(capacity.get(), spec_.placement);
    if (!hardware.ok()) {
      candidate.closed = std::string(hardware.status().message());
      return candidate;
    }
    const auto shape = ExecutorShape(request_.identity, *request_.job, *request_.images, *hardware);
    if (!shape.ok()) {
      candidate.closed = absl::StrCat("cannot be asked: ", std::string(shape.status().message()));
      return candidate;
    }
    candidate.each = shape->requests;
    if (capacity == nullptr) {
      if (!AsksForDevices(*shape)) candidate.products[""] = 0;
      return candidate;
    }
    const FreeCapacity room = FreeCapacityFor(*shape, *capacity, request_.identity.uid, Reserved(facts, *capacity));
    candidate.devices = DevicesOf(*shape, room);
    candidate.products = Products(*shape, *hardware, *capacity, facts.on_demand ? FreeCapacity() : room);
    if (facts.on_demand) return candidate;
    candidate.room = room.pods;
    candidate.shortage = absl::StrCat("each asks for ", AsText(*shape), "; ", room.shortage);
    return candidate;
  }

 private:
  std::string Closed(const ClusterFacts& facts, const Member* member) const {
    if (facts.leaving) return "is being removed";
    if (member == nullptr || !member->reachable()) return "cannot be reached";
    const auto avoided = request_.avoided.find(facts.name);
    if (avoided != request_.avoided.end()) return avoided->second;
    if (GraphIsAmongData(spec_) && !HoldsData(spec_.data, facts.name)) {
      return "has no spec.model.graph.file: it is not in spec.data.clusters";
    }
    return "";
  }

  std::vector<kube::Amounts> Reserved(const ClusterFacts& facts, const ClusterCapacity& capacity) const {
    std::vector<kube::Amounts> reserved;
    if (reservations_ != nullptr) {
      reserved = reservations_->ReservedByOthers(facts.name, request_.identity.uid, capacity.pods_of_job, request_.now);
    }
    if (!facts.local) return reserved;
    // Its own broker comes first.
    if (const auto shape = BrokerShape(request_); shape.ok()) reserved.push_back(shape->requests);
    return reserved;
  }

  const CandidatesRequest& request_;
  const job::Spec& spec_;
  Reservations* const reservations_;
};

}  // namespace

std::vector<ClusterCandidate> Candidates(const CandidatesRequest& request, const Member& hub, const Members& members,
                                         Reservations* reservations) {
  std::map<std::string, std::shared_ptr<Member>> remote;
  for (const std::shared_ptr<Member>& member : members.Remote()) remote[member->name()] = member;
  std::vector<ClusterFacts> all = members.Clusters();
  std::sort(all.begin(), all.end(),
            [](const ClusterFacts& a, const ClusterFacts& b) { return a.local != b.local ? a.local : a.name < b.name; });
  Surveyor surveyor(request, reservations);
  std::vector<ClusterCandidate> candidates;
  for (const ClusterFacts& facts : all) {
    const auto at = remote.find(facts.name);
    candidates.push_back(surveyor.Look(facts, facts.local ? &hub : at == remote.end() ? nullptr : at->second.get()));
  }
  return candidates;
}

std::string BrokerShortage(const CandidatesRequest& request, const Member& hub, const Members& members, Reservations* reservations) {
  const std::shared_ptr<const ClusterCapacity> capacity = hub.Capacity();
  if (capacity == nullptr) return "";
  std::string name;
  bool on_demand = request.hub_on_demand;
  for (const ClusterFacts& facts : members.Clusters()) {
    if (!facts.local) continue;
    name = facts.name;
    on_demand = facts.on_demand;
  }
  // What is wrong with its template is reported when the API server is asked about it.
  const absl::StatusOr<PodShape> shape = BrokerShape(request);
  if (on_demand || !shape.ok()) return "";
  std::vector<kube::Amounts> reserved;
  if (reservations != nullptr) reserved = reservations->ReservedByOthers(name, request.identity.uid, capacity->pods_of_job, request.now);
  const FreeCapacity room = FreeCapacityFor(*shape, *capacity, request.identity.uid, reserved);
  if (room.pods > 0) return "";
  return absl::StrCat("the broker finds no room on the hub", name.empty() ? "" : absl::StrCat(", ", name), ": it asks for ", AsText(*shape),
                      "; ", room.shortage);
}

absl::StatusOr<PodShape> BrokerShape(const CandidatesRequest& request) {
  FUSIONLLM_ASSIGN_OR_RETURN(const nlohmann::json pod, BrokerPod(request.identity, *request.job, {}, *request.images, {}));
  return ShapeOfPod(pod);
}

absl::StatusOr<PodShape> ExecutorShape(const JobIdentity& identity, const job::FusionJob& job, const Images& images,
                                       const DeviceKind& hardware) {
  FUSIONLLM_ASSIGN_OR_RETURN(const nlohmann::json pod, ExecutorPod(identity, job, {}, 0, {"broker:1"}, images, {}, hardware));
  return ShapeOfPod(pod);
}

absl::StatusOr<DeviceKind> HardwareIn(const ClusterCapacity* capacity, const job::Placement& placement) {
  if (placement.device == "any" || placement.device == "cpu") return DeviceKind();
  if (capacity == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("does not tell what its nodes have, and spec.placement.device asks for ", placement.device));
  }
  const int64_t least = placement.min_memory.has_value() ? placement.min_memory->bytes : 0;
  DeviceKind kind = FindDevice(placement.device, least, *capacity);
  if (!kind.values.empty()) return kind;
  const std::vector<std::string> names = DeviceNames(*capacity);
  return absl::FailedPreconditionError(
      absl::StrCat("has no device ", placement.device, least > 0 ? absl::StrCat(" with ", kube::AmountText(kube::kMemory, least)) : "",
                   "; its nodes have: ", names.empty() ? "none that are labelled" : absl::StrJoin(names, ", ")));
}

DeviceKind HardwareOf(const job::Placement& placement, const Member& hub, const Members& members) {
  const auto look = [&](const Member& member) {
    absl::StatusOr<DeviceKind> kind = HardwareIn(member.Capacity().get(), placement);
    return kind.ok() ? *std::move(kind) : DeviceKind();
  };
  DeviceKind kind = look(hub);
  for (const std::shared_ptr<Member>& member : members.Remote()) {
    if (kind.resource.empty()) kind = look(*member);
  }
  return kind;
}

}  // namespace fusionllm::op
