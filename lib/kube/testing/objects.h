// Kinds and answers that tests of clients use.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "lib/kube/api/resource.h"

namespace fusionllm::kube::testing {

inline const Resource kPods = {"", "v1", "pods", "Pod", true};
inline const Resource kConfigMaps = {"", "v1", "configmaps", "ConfigMap", true};
inline const Resource kNamespaces = {"", "v1", "namespaces", "Namespace", false};

// The object of a call that must succeed.
inline nlohmann::json Parsed(const absl::StatusOr<std::string>& answer) {
  EXPECT_TRUE(answer.ok()) << answer.status();
  if (!answer.ok()) return nlohmann::json::object();
  nlohmann::json object = nlohmann::json::parse(*answer, nullptr, /*allow_exceptions=*/false);
  EXPECT_TRUE(object.is_object()) << answer->substr(0, 200);
  return object;
}

inline std::string VersionOf(const nlohmann::json& object) { return object["metadata"].value("resourceVersion", ""); }

}  // namespace fusionllm::kube::testing
