// ResourceList of resources out of JSON; for the decoders of this folder.
#pragma once

#include "absl/strings/ascii.h"
#include "lib/kube/api/resource_list.h"
#include "lib/kube/watch/json_reading.h"

namespace fusionllm::kube {

// {"cpu": "500m", "memory": 1024}. What is no quantity is left out.
inline ResourceList ReadResourceList(JsonValue value) {
  ResourceList resources;
  ForEachField(value, [&](std::string_view resource, JsonValue quantity) {
    // A number, too, is a quantity.
    const bool text = quantity.type() == simdjson::ondemand::json_type::string;
    const std::string written = text ? TextOf(quantity) : std::string(absl::StripAsciiWhitespace(View(quantity.raw_json_token())));
    const absl::StatusOr<int64_t> amount = ParseResourceQuantity(View(resource), written);
    if (amount.ok()) resources[std::string(resource)] = *amount;
  });
  return resources;
}

}  // namespace fusionllm::kube
