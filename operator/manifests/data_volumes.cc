#include "operator/manifests/data_volumes.h"

#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/base/object_uri.h"
#include "lib/base/status_macros.h"
#include "lib/kube/api/json_fields.h"
#include "operator/manifests/identity.h"

namespace fusionllm::op::manifests {
namespace {

absl::Status CheckPaths(const char* field, const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    if (base::IsUri(path) || absl::StartsWith(path, "/")) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "spec.", field, ": ", path,
        " is a file of the machine where the job was written, and no volume brings it into the cluster: delete the job and make "
        "it by `fusionctl kubernetes prepare JOB.yaml | kubectl apply -f -`"));
  }
  return absl::OkStatus();
}

bool TemplateMayHaveThem(const std::string& pod_template, const char* role) {
  const nlohmann::json parsed = kube::ParseJson(pod_template);
  for (const nlohmann::json& container : kube::ListOf(kube::At(parsed, "spec", "containers"))) {
    if (kube::TextAt(container, "name") != role) continue;
    if (!kube::TextAt(container, "image").empty() || !kube::ListOf(kube::At(container, "volumeMounts")).empty()) return true;
  }
  return false;
}

}  // namespace

absl::Status CheckDataVolumes(const job::Spec& spec) {
  if (!spec.data.volume.json.empty()) return absl::OkStatus();
  if (!TemplateMayHaveThem(spec.executors.pod_template.json, kExecutorRole)) {
    FUSIONLLM_RETURN_IF_ERROR(CheckPaths("data.path", spec.data.path));
    if (spec.data.validation.has_value()) FUSIONLLM_RETURN_IF_ERROR(CheckPaths("data.validation.path", spec.data.validation->path));
  }
  const bool volume_of_checkpoints = spec.checkpoint.has_value() && !spec.checkpoint->volume.json.empty();
  if (!spec.model.init.from.has_value() || volume_of_checkpoints || TemplateMayHaveThem(spec.broker.pod_template.json, kBrokerRole)) {
    return absl::OkStatus();
  }
  return CheckPaths("model.init.from", {*spec.model.init.from});
}

}  // namespace fusionllm::op::manifests
