// YAML as kubectl makes JSON of it. Header-only.
#pragma once

#include <yaml-cpp/yaml.h>

#include <nlohmann/json.hpp>
#include <string>

namespace fusionllm::kubeapi::testing {

// As kubectl sends it.
inline nlohmann::json FromYaml(const YAML::Node& node) {
  nlohmann::json value;
  if (node.IsMap()) {
    value = nlohmann::json::object();
    for (const auto& item : node) value[item.first.as<std::string>()] = FromYaml(item.second);
  } else if (node.IsSequence()) {
    value = nlohmann::json::array();
    for (const auto& item : node) value.push_back(FromYaml(item));
  } else if (node.IsScalar()) {
    value = node.Tag() == "!" ? nlohmann::json() : nlohmann::json::parse(node.Scalar(), nullptr, false);
    if (!value.is_number() && !value.is_boolean()) value = node.Scalar();
  }
  return value;
}

}  // namespace fusionllm::kubeapi::testing
