#include "lib/kube/watch/pod_demand.h"

#include <algorithm>

#include "lib/kube/watch/amounts_reading.h"
#include "lib/kube/watch/object_metadata.h"

namespace fusionllm::kube {
namespace {

Amounts ReadRequests(JsonValue resources) {
  Amounts requests, limits;
  ForEachField(resources, [&](std::string_view field, JsonValue value) {
    if (field == "requests") requests = ReadAmounts(value);
    if (field == "limits") limits = ReadAmounts(value);
  });
  requests.merge(limits);
  return requests;
}

struct Container {
  Amounts requests;
  bool sidecar = false;  // an init container that stays
};

std::vector<Container> ReadContainers(JsonValue list) {
  std::vector<Container> containers;
  ForEachElement(list, [&](JsonValue element) {
    Container& container = containers.emplace_back();
    ForEachField(element, [&](std::string_view field, JsonValue value) {
      if (field == "resources") container.requests = ReadRequests(value);
      if (field == "restartPolicy") container.sidecar = TextOf(value) == "Always";
    });
  });
  return containers;
}

Amounts TogetherOf(const std::vector<Container>& containers, const std::vector<Container>& init) {
  Amounts sidecars, most_while_starting;
  for (const Container& container : init) {
    Amounts now = sidecars;
    AddAmounts(container.requests, now);
    RaiseAmounts(now, most_while_starting);
    if (container.sidecar) sidecars = std::move(now);
  }
  Amounts together = sidecars;
  for (const Container& container : containers) AddAmounts(container.requests, together);
  RaiseAmounts(most_while_starting, together);
  return together;
}

void ReadSpec(JsonValue spec, PodDemand& pod) {
  std::vector<Container> containers, init;
  Amounts overhead, whole;
  ForEachField(spec, [&](std::string_view field, JsonValue value) {
    if (field == "nodeName") pod.node = TextOf(value);
    if (field == "containers") containers = ReadContainers(value);
    if (field == "initContainers") init = ReadContainers(value);
    if (field == "overhead") overhead = ReadAmounts(value);
    if (field == "resources") whole = ReadRequests(value);  // of the pod as a whole, which go before those of its containers
  });
  pod.requests = TogetherOf(containers, init);
  for (const auto& [resource, amount] : whole) pod.requests[resource] = amount;
  AddAmounts(overhead, pod.requests);
  std::erase_if(pod.requests, [](const auto& entry) { return entry.second <= 0; });
  pod.requests[kPodCount] = 1;
}

absl::Status ReadPod(absl::string_view json, PodDemand& pod) {
  return ReadJson(json, [&](simdjson::ondemand::object root) {
    for (auto field : root) {
      const std::string_view name = field.unescaped_key();
      if (name == "metadata") ReadMetadata(field.value(), pod.meta);
      if (name == "spec") ReadSpec(field.value(), pod);
      if (name != "status") continue;
      ForEachField(field.value(), [&](std::string_view of_status, JsonValue value) {
        if (of_status != "phase") return;
        const std::string phase = TextOf(value);
        pod.ended = phase == "Succeeded" || phase == "Failed";
      });
    }
  });
}

}  // namespace

absl::StatusOr<ObjectPtr> DecodePodDemand(absl::string_view json, const std::vector<std::string>& kept_labels) {
  const auto pod = std::make_shared<PodDemand>();
  absl::Status status = ReadPod(json, *pod);
  if (status.ok()) status = CheckMetadata(pod->meta);
  if (!status.ok()) return status;
  const auto dropped = [&](const auto& label) {
    return std::find(kept_labels.begin(), kept_labels.end(), label.first) == kept_labels.end();
  };
  std::erase_if(pod->meta.labels, dropped);
  pod->meta.labels.shrink_to_fit();
  pod->meta.finalizers = {};
  return pod;
}

absl::StatusOr<Amounts> RequestsOfPod(absl::string_view json) {
  PodDemand pod;
  const absl::Status status = ReadPod(json, pod);
  if (!status.ok()) return status;
  return std::move(pod.requests);
}

}  // namespace fusionllm::kube
