// Quantities of several resources, by the names that Kubernetes gives them: processors in thousandths of a core ("cpu": 1500), all else in
// whole units ("memory": bytes, "pods", "nvidia.com/gpu"). Plain values and pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace fusionllm::kube {

inline constexpr char kCpu[] = "cpu";
inline constexpr char kMemory[] = "memory";
inline constexpr char kPodCount[] = "pods";

using ResourceList = std::map<std::string, int64_t, std::less<>>;

// What is out of range is the greatest amount there is: more than any node has. InvalidArgument: no quantity.
absl::StatusOr<int64_t> ParseResourceQuantity(absl::string_view resource, absl::string_view quantity);

size_t BytesOf(const ResourceList& resources);                                  // about how much memory they take
int64_t QuantityOf(const ResourceList& resources, absl::string_view resource);  // 0 where there is none
void AddResourceList(const ResourceList& other, ResourceList& to);
void MaxResourceList(const ResourceList& other, ResourceList& to);  // to the larger of both, each
// For people: "1.5 cpu", "8Gi memory", "2 nvidia.com/gpu".
std::string QuantityText(absl::string_view resource, int64_t amount);
std::string ResourceListText(const ResourceList& resources);  // "4 cpu, 8Gi memory"; "nothing"

}  // namespace fusionllm::kube
