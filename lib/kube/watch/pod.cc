#include <algorithm>
#include <climits>

#include "lib/kube/watch/object.h"
#include "lib/kube/watch/object_metadata.h"

namespace fusionllm::kube {
namespace {

int IntOf(JsonValue value) {
  const int64_t number = value.get_int64();
  return number < INT_MIN || number > INT_MAX ? -1 : static_cast<int>(number);
}

void ReadState(JsonValue value, ContainerState& state) {
  using Kind = ContainerState::Kind;
  ForEachField(value, [&](std::string_view which, JsonValue detail) {
    if (detail.is_null()) return;
    if (which == "waiting") state.kind = Kind::kWaiting;
    if (which == "running") state.kind = Kind::kRunning;
    if (which == "terminated") state.kind = Kind::kTerminated;
    ForEachField(detail, [&](std::string_view field, JsonValue of_state) {
      if (field == "reason") state.reason = TextOf(of_state);
      if (field == "message") state.message = TextOf(of_state);
      if (field == "exitCode") state.exit_code = IntOf(of_state);
    });
  });
}

void ReadContainerStatuses(JsonValue statuses, std::vector<ContainerStatus>& containers) {
  ForEachElement(statuses, [&](JsonValue status) {
    ContainerStatus& container = containers.emplace_back();
    ForEachField(status, [&](std::string_view field, JsonValue value) {
      if (field == "name") container.name = TextOf(value);
      if (field == "ready") container.ready = value.get_bool();
      if (field == "restartCount") container.restarts = IntOf(value);
      if (field == "state") ReadState(value, container.state);
      if (field == "lastState") ReadState(value, container.last_state);
    });
  });
  containers.shrink_to_fit();
}

void ReadConditions(JsonValue list, std::vector<PodCondition>& conditions) {
  ForEachElement(list, [&](JsonValue element) {
    PodCondition& condition = conditions.emplace_back();
    ForEachField(element, [&](std::string_view field, JsonValue value) {
      if (field == "type") condition.type = TextOf(value);
      if (field == "status") condition.status = TextOf(value);
      if (field == "reason") condition.reason = TextOf(value);
      if (field == "message") condition.message = TextOf(value);
    });
  });
  conditions.shrink_to_fit();
}

void ReadPodStatus(JsonValue status, Pod& pod) {
  ForEachField(status, [&](std::string_view field, JsonValue value) {
    if (field == "phase") pod.phase = TextOf(value);
    if (field == "reason") pod.reason = TextOf(value);
    if (field == "message") pod.message = TextOf(value);
    if (field == "podIP") pod.pod_ip = TextOf(value);
    if (field == "hostIP") pod.host_ip = TextOf(value);
    if (field == "conditions") ReadConditions(value, pod.conditions);
    if (field == "initContainerStatuses") ReadContainerStatuses(value, pod.init_containers);
    if (field == "containerStatuses") ReadContainerStatuses(value, pod.containers);
  });
}

}  // namespace

bool Pod::Ready() const {
  return std::any_of(conditions.begin(), conditions.end(), [](const PodCondition& c) { return c.type == "Ready" && c.status == "True"; });
}

absl::StatusOr<ObjectPtr> DecodePod(absl::string_view json) {
  const auto pod = std::make_shared<Pod>();
  absl::Status status = ReadJson(json, [&](simdjson::ondemand::object root) {
    for (auto field : root) {
      const std::string_view name = field.unescaped_key();
      if (name == "metadata") ReadMetadata(field.value(), pod->meta, nullptr, nullptr, &pod->controller);
      if (name == "status") ReadPodStatus(field.value(), *pod);
      if (name == "spec") {
        ForEachField(field.value(), [&](std::string_view of_spec, JsonValue value) {
          if (of_spec == "nodeName") pod->node = TextOf(value);
        });
      }
    }
  });
  if (status.ok()) status = CheckMetadata(pod->meta);
  if (!status.ok()) return status;
  return pod;
}

}  // namespace fusionllm::kube
