#include "operator/controller/missing_references.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/status_macros.h"
#include "lib/kube/api/api_error.h"
#include "lib/kube/api/json_fields.h"
#include "operator/manifests/pod_references.h"
#include "operator/manifests/resources.h"

namespace fusionllm::op::controller {
namespace {

using nlohmann::json;

// Enough to see what is wrong.
constexpr size_t kMaxNamedKeys = 5;

// "a, b, and 2 more"; `separator` stands between two.
std::string Named(const std::vector<std::string>& what, const char* separator) {
  const size_t named = std::min(what.size(), kMaxNamedKeys);
  const auto end = what.begin() + static_cast<ptrdiff_t>(named);
  return absl::StrCat(absl::StrJoin(what.begin(), end, separator),
                      what.size() > named ? absl::StrCat(", and ", what.size() - named, " more") : "");
}

// What the operator itself makes for them, later.
bool IsOurs(const manifests::PodReference& reference, const manifests::JobIdentity& job,
            const std::optional<manifests::ExecutorSlot>& executor) {
  if (reference.kind == &manifests::kConfigMaps) return reference.name == manifests::JobDocumentName(job);
  if (reference.kind != &manifests::kSecrets) return false;
  return reference.name == manifests::BrokerSecretName(job) ||
         (executor.has_value() && reference.name == manifests::ExecutorSecretName(job, executor->index));
}

// Of all pods, each object once: `use` says of which it was first.
std::vector<manifests::PodReference> AllOf(const std::vector<json>& pods) {
  std::vector<manifests::PodReference> all;
  for (const json& pod : pods) {
    for (manifests::PodReference& reference : manifests::ReferencesOf(pod)) {
      const auto same = [&](const manifests::PodReference& other) { return other.kind == reference.kind && other.name == reference.name; };
      const auto at = std::find_if(all.begin(), all.end(), same);
      if (at != all.end()) {
        at->keys.insert(at->keys.end(), reference.keys.begin(), reference.keys.end());
        continue;
      }
      absl::StrAppend(&reference.use, " of the ", kube::TextAt(pod, "metadata", "labels", manifests::kRoleLabel));
      all.push_back(std::move(reference));
    }
  }
  return all;
}

// Of a ConfigMap or a Secret. The names alone: what a Secret holds goes no further than this.
std::vector<std::string> KeysOf(const json& object) {
  std::vector<std::string> keys;
  for (const char* field : {"data", "binaryData"}) {
    const json& data = kube::At(object, field);
    if (!data.is_object()) continue;
    for (const auto& entry : data.items()) keys.push_back(entry.key());
  }
  return keys;
}

// What of it is missing, as one thing each.
absl::StatusOr<std::vector<std::string>> MissingOf(kube::ApiClient& client, const std::string& ns, const manifests::PodReference& reference,
                                                   const kube::CallOptions& call) {
  const bool look_inside = !reference.keys.empty();  // claims have none
  const absl::StatusOr<std::string> answer = look_inside ? client.Get(*reference.kind, {ns, reference.name}, call)
                                                         : client.GetMetadata(*reference.kind, {ns, reference.name}, call);
  std::vector<std::string> missing;
  if (kube::IsApiForbidden(answer.status())) return missing;
  const std::string object = absl::StrCat(reference.kind->kind, " ", reference.name);
  if (kube::IsApiNotFound(answer.status())) {
    missing.push_back(absl::StrCat(object, " (", reference.use, ")"));
    return missing;
  }
  FUSIONLLM_RETURN_IF_ERROR(answer.status());
  if (!look_inside) return missing;
  const std::vector<std::string> keys = KeysOf(kube::ParseJson(*answer));
  const std::string there = keys.empty() ? "it has none" : absl::StrCat("its keys: ", Named(keys, ", "));
  for (const std::string& key : reference.keys) {
    if (std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
    missing.push_back(absl::StrCat("key ", key, " in ", object, " (", reference.use, "; ", there, ")"));
  }
  return missing;
}

}  // namespace

absl::StatusOr<std::string> MissingReferences(kube::ApiClient& client, const manifests::JobIdentity& job,
                                              const std::optional<manifests::ExecutorSlot>& executor, const std::vector<json>& pods,
                                              const std::stop_token& stop) {
  std::vector<std::string> missing;
  for (const manifests::PodReference& reference : AllOf(pods)) {
    if (IsOurs(reference, job, executor)) continue;
    FUSIONLLM_ASSIGN_OR_RETURN(const std::vector<std::string> of_it, MissingOf(client, job.ns, reference, {.stop = stop}));
    missing.insert(missing.end(), of_it.begin(), of_it.end());
  }
  if (missing.empty()) return "";
  return absl::StrCat("namespace ", job.ns, " has no ", Named(missing, ", no "), ".");
}

}  // namespace fusionllm::op::controller
