#include "lib/kube/watch/pod_resources.h"

#include "lib/kube/watch/interner.h"
#include "lib/kube/watch/object_metadata.h"
#include "lib/kube/watch/resource_list_reading.h"

namespace fusionllm::kube {
namespace {

ResourceList ReadRequests(JsonValue resources) {
  ResourceList requests, limits;
  ForEachField(resources, [&](std::string_view field, JsonValue value) {
    if (field == "requests") requests = ReadResourceList(value);
    if (field == "limits") limits = ReadResourceList(value);
  });
  requests.merge(limits);
  return requests;
}

struct Container {
  ResourceList requests;
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

ResourceList TogetherOf(const std::vector<Container>& containers, const std::vector<Container>& init) {
  ResourceList sidecars, max_while_starting;
  for (const Container& container : init) {
    ResourceList now = sidecars;
    AddResourceList(container.requests, now);
    MaxResourceList(now, max_while_starting);
    if (container.sidecar) sidecars = std::move(now);
  }
  ResourceList together = sidecars;
  for (const Container& container : containers) AddResourceList(container.requests, together);
  MaxResourceList(max_while_starting, together);
  return together;
}

void ReadDemand(JsonValue spec, std::string& node, ResourceList& requests) {
  std::vector<Container> containers, init;
  ResourceList overhead, whole;
  ForEachField(spec, [&](std::string_view field, JsonValue value) {
    if (field == "nodeName") node = TextOf(value);
    if (field == "containers") containers = ReadContainers(value);
    if (field == "initContainers") init = ReadContainers(value);
    if (field == "overhead") overhead = ReadResourceList(value);
    if (field == "resources") whole = ReadRequests(value);  // of the pod as a whole, which go before those of its containers
  });
  requests = TogetherOf(containers, init);
  for (const auto& [resource, amount] : whole) requests[resource] = amount;
  AddResourceList(overhead, requests);
  std::erase_if(requests, [](const auto& entry) { return entry.second <= 0; });
  requests[kPodCount] = 1;
}

absl::Status ReadPod(absl::string_view json, PodResources& pod, ResourceList& requests) {
  return ReadJson(json, [&](simdjson::ondemand::object root) {
    for (auto field : root) {
      const std::string_view name = field.unescaped_key();
      if (name == "metadata") ReadMetadata(field.value(), pod.meta);
      if (name == "spec") ReadDemand(field.value(), pod.node, requests);
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

absl::Status ReadPodResources(absl::string_view json, PodResources& pod) {
  // For the life of the process: the executors of a job all request the same, and so do those of most jobs.
  static auto& all_requests = *new Interner<ResourceList>();
  ResourceList requests;
  if (absl::Status status = ReadPod(json, pod, requests); !status.ok()) return status;
  pod.requests = all_requests.Share(std::move(requests));
  return CheckMetadata(pod.meta);
}

absl::StatusOr<ResourceList> RequestsOfPod(absl::string_view json) {
  PodResources pod;
  ResourceList requests;
  if (absl::Status status = ReadPod(json, pod, requests); !status.ok()) return status;
  return requests;
}

}  // namespace fusionllm::kube
