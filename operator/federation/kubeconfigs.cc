#include "operator/federation/kubeconfigs.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/kube/api/api_error.h"
#include "lib/kube/api/json_fields.h"
#include "operator/federation/cluster_object.h"
#include "operator/federation/cluster_profile.h"
#include "operator/manifests/resources.h"

namespace fusionllm::op::federation {

using kubeapi::FusionClusterSpec;
using nlohmann::json;

Kubeconfigs::Kubeconfigs(KubeconfigOptions options, kube::ApiClient& hub, kube::Clock& clock, const kube::InformerMetrics* metrics)
    : options_(std::move(options)),
      secrets_(hub, clock, metrics, manifests::kSecrets,
               [this](const kube::ObjectKey& secret) {
                 options_.changed([&](const FusionClusterSpec& spec) { return spec.kube_config.has_value() && SecretOf(spec) == secret; });
               }),
      profiles_(hub, clock, metrics, manifests::kClusterProfiles, [this](const kube::ObjectKey& profile) {
        options_.changed([&](const FusionClusterSpec& spec) { return spec.cluster_profile_ref.has_value() && ProfileOf(spec) == profile; });
      }) {}

kube::ObjectKey Kubeconfigs::SecretOf(const FusionClusterSpec& spec) const { return {options_.ns, spec.kube_config->location}; }

kube::ObjectKey Kubeconfigs::ProfileOf(const FusionClusterSpec& spec) const {
  return {spec.cluster_profile_ref->ns.value_or(options_.ns), spec.cluster_profile_ref->name};
}

Kubeconfigs::Found Kubeconfigs::Read(const FusionClusterSpec& spec, std::stop_token stop) {
  return spec.cluster_profile_ref.has_value() ? FromProfile(spec, std::move(stop)) : FromSecret(spec, std::move(stop));
}

Kubeconfigs::Found Kubeconfigs::FromSecret(const FusionClusterSpec& spec, std::stop_token stop) {
  constexpr char kReason[] = "SecretUnavailable";
  const kube::ObjectKey key = SecretOf(spec);
  const absl::StatusOr<std::string> answer = secrets_.Read(key, std::move(stop));
  if (!answer.ok()) return {answer.status(), kReason};
  const json secret = kube::ParseJson(*answer);
  const json& data = kube::At(secret, "data", spec.kube_config->key);
  std::string text;
  if (!data.is_string() || !absl::Base64Unescape(kube::TextOf(data), &text)) {
    return {absl::NotFoundError(absl::StrCat("Secret ", key.ToString(), " has no key ", spec.kube_config->key)), kReason};
  }
  return {std::move(text)};
}

Kubeconfigs::Found Kubeconfigs::FromProfile(const FusionClusterSpec& spec, std::stop_token stop) {
  if (options_.providers.empty()) {
    return {absl::FailedPreconditionError("the operator is given no access providers for ClusterProfiles (--cluster-profile-providers)"),
            "ProfilesNotEnabled"};
  }
  const kube::ObjectKey key = ProfileOf(spec);
  const absl::StatusOr<std::string> profile = profiles_.Read(key, std::move(stop));
  if (kube::IsApiNotFound(profile.status())) {
    // Of an object that is missing its server gives the name, of a kind that it does not serve it cannot.
    if (absl::StrContains(profile.status().message(), absl::StrCat("\"", key.name, "\""))) {
      return {absl::NotFoundError(absl::StrCat("there is no ClusterProfile ", key.ToString())), "ProfileMissing"};
    }
    return {absl::NotFoundError(absl::StrCat("the hub does not serve the kind ClusterProfile of ", manifests::kClusterProfiles.ApiVersion(),
                                             ": is its CustomResourceDefinition installed?")),
            "ProfileKindMissing"};
  }
  if (!profile.ok()) return {profile.status(), "ProfileUnavailable"};
  absl::StatusOr<std::string> text = KubeconfigOfProfile(*profile, options_.providers);
  if (text.ok()) return {*std::move(text)};
  return {absl::Status(text.status().code(), absl::StrCat("ClusterProfile ", key.ToString(), ": ", text.status().message())),
          absl::IsNotFound(text.status()) ? "NoAccessProvider" : "ProfileRefused"};
}

void Kubeconfigs::RetainOnly(const std::vector<kube::ObjectPtr>& clusters) {
  std::set<kube::ObjectKey> secrets, profiles;
  for (const kube::ObjectPtr& object : clusters) {
    if (!object->meta.deletion_timestamp.empty()) continue;
    const FusionClusterSpec& spec = AsCluster(object).cluster.spec;
    if (spec.kube_config.has_value()) secrets.insert(SecretOf(spec));
    if (spec.cluster_profile_ref.has_value()) profiles.insert(ProfileOf(spec));
  }
  secrets_.RetainOnly(secrets);
  profiles_.RetainOnly(profiles);
}

}  // namespace fusionllm::op::federation
