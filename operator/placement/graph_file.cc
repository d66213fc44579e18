#include "operator/placement/graph_file.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/kube/api/json_fields.h"
#include "operator/manifests/resources.h"
#include "operator/manifests/run_objects.h"

namespace fusionllm::op::placement {
namespace {

using nlohmann::json;

}  // namespace

std::optional<ConfigMapFile> GraphInConfigMap(const job::Spec& spec) {
  if (!spec.model.graph.has_value() || !spec.model.graph->file.has_value()) return std::nullopt;
  const job::RawExtension& volume = manifests::GraphIsAmongData(spec) ? spec.data.volume : spec.model.graph->volume;
  const json parsed = kube::ParseJson(volume.json);
  const json& source = kube::At(parsed, "configMap");
  const std::string name = kube::TextAt(source, "name");
  if (name.empty()) return std::nullopt;
  const std::string path = std::filesystem::path(*spec.model.graph->file).lexically_normal().string();
  const json& items = kube::At(source, "items");
  if (!items.is_array()) return ConfigMapFile{name, path};
  for (const json& item : items) {
    if (kube::TextAt(item, "path") == path) return ConfigMapFile{name, kube::TextAt(item, "key")};
  }
  return std::nullopt;
}

absl::StatusOr<std::string> ReadConfigMapFile(kube::ApiClient& client, const std::string& ns, const ConfigMapFile& file,
                                              std::stop_token stop) {
  FUSIONLLM_ASSIGN_OR_RETURN(const std::string answer,
                             client.Get(manifests::kConfigMaps, {ns, file.config_map}, {.stop = std::move(stop)}));
  const json object = kube::ParseJson(answer);
  const json& data = kube::At(object, "data", file.key);
  if (!data.is_string()) return absl::NotFoundError(absl::StrCat("ConfigMap ", file.config_map, " has no text ", file.key));
  return data.get<std::string>();
}

}  // namespace fusionllm::op::placement
