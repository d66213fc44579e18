#include "operator/manifests/data_place.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/base/object_uri.h"
#include "lib/kube/api/json_fields.h"
#include "operator/manifests/identity.h"

namespace fusionllm::op {
namespace {

absl::Status CheckPaths(const char* field, const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    if (base::IsUri(path) || absl::StartsWith(path, "/")) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "spec.", field, ": ", path,
        " is nowhere in a cluster, where a relative path lies in spec.data.volume, and there is none; an absolute path is one of "
        "the executors' image, or of mounts of spec.executors.template"));
  }
  return absl::OkStatus();
}

bool TemplateMayHaveThem(const std::string& pod_template) {
  const nlohmann::json parsed = kube::ParseJson(pod_template);
  for (const nlohmann::json& container : kube::ListOf(kube::At(parsed, "spec", "containers"))) {
    if (kube::TextAt(container, "name") != kExecutorRole) continue;
    if (!kube::TextAt(container, "image").empty() || !kube::ListOf(kube::At(container, "volumeMounts")).empty()) return true;
  }
  return false;
}

}  // namespace

absl::Status DataHaveAPlace(const job::Spec& spec) {
  if (!spec.data.volume.json.empty() || TemplateMayHaveThem(spec.executors.pod_template.json)) return absl::OkStatus();
  const absl::Status status = CheckPaths("data.path", spec.data.path);
  if (!status.ok() || !spec.data.validation.has_value()) return status;
  return CheckPaths("data.validation.path", spec.data.validation->path);
}

}  // namespace fusionllm::op
