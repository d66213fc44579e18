#include "cli/cluster/member_objects.h"

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "lib/kubeapi/pod_policy.h"
#include "lib/kubeapi/rights.h"

namespace fusionllm::cli {
namespace {

using nlohmann::json;

const kube::Resource kServiceAccount = {"", "v1", "serviceaccounts", "ServiceAccount", true};
const kube::Resource kRole = {"rbac.authorization.k8s.io", "v1", "roles", "Role", true};
const kube::Resource kClusterRole = {"rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", false};

ClusterObject Object(const kube::Resource& resource, const kube::ObjectKey& key, json content = json::object()) {
  content["apiVersion"] = resource.ApiVersion();
  content["kind"] = resource.kind;
  content["metadata"]["name"] = key.name;
  if (!key.ns.empty()) content["metadata"]["namespace"] = key.ns;
  content["metadata"]["labels"] = {{kubeapi::kManagedByLabel, kFieldManager}};
  return {resource, key, std::move(content)};
}

ClusterObject Binding(const AddClusterOptions& options, const std::string& role, const std::string& ns,
                      const kube::Resource& of = kClusterRole) {
  json content = {
      {"roleRef", {{"apiGroup", of.group}, {"kind", of.kind}, {"name", role}}},
      {"subjects", json::array({{{"kind", "ServiceAccount"}, {"name", options.account}, {"namespace", options.member_namespace}}})}};
  return Object(ns.empty() ? kClusterRoleBindingResource : kRoleBindingResource, {ns, role}, std::move(content));
}

}  // namespace

const kube::Resource kSecretResource = {"", "v1", "secrets", "Secret", true};
const kube::Resource kConfigMapResource = {"", "v1", "configmaps", "ConfigMap", true};
const kube::Resource kNamespaceResource = {"", "v1", "namespaces", "Namespace", false};
const kube::Resource kRoleBindingResource = {"rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding", true};
const kube::Resource kClusterRoleBindingResource = {"rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", false};
const kube::Resource kAdmissionPolicyResource = {"admissionregistration.k8s.io", "v1", "validatingadmissionpolicies",
                                                 "ValidatingAdmissionPolicy", false};
const kube::Resource kAdmissionPolicyBindingResource = {"admissionregistration.k8s.io", "v1", "validatingadmissionpolicybindings",
                                                        "ValidatingAdmissionPolicyBinding", false};
const kube::Resource kFusionClusterResource = {"fusionllm.io", "v1alpha1", "fusionclusters", "FusionCluster", false};

kube::ObjectKey TokenSecret(const AddClusterOptions& options) {
  return {options.member_namespace, absl::StrCat(options.account, "-token")};
}

std::string WorkRole(const std::string& account) { return absl::StrCat(account, "-work"); }

std::vector<ClusterObject> MemberObjects(const AddClusterOptions& options) {
  const std::string watch = absl::StrCat(options.account, "-watch"), work = WorkRole(options.account);
  std::vector<ClusterObject> objects;
  // Nothing but the name: who else labels the namespace keeps his labels.
  objects.push_back({kNamespaceResource,
                     {"", options.member_namespace},
                     {{"apiVersion", "v1"}, {"kind", "Namespace"}, {"metadata", {{"name", options.member_namespace}}}}});
  objects.push_back(Object(kServiceAccount, {options.member_namespace, options.account}));
  // Before the rights that they bound.
  const kubeapi::PolicySubject subject{options.member_namespace, options.account, options.job_service_accounts};
  for (const auto& [what, spec] :
       {std::pair("-pods", kubeapi::PodPolicySpec(subject)), std::pair("-places", kubeapi::PlacePolicySpec(subject)),
        std::pair("-changes", kubeapi::ChangePolicySpec(subject)),
        std::pair("-tokens", kubeapi::TokenPolicySpec(subject, TokenSecret(options).name, absl::ToInt64Seconds(kubeapi::kTokenLife)))}) {
    const std::string name = absl::StrCat(options.account, what);
    objects.push_back(Object(kAdmissionPolicyResource, {"", name}, {{"spec", json(spec)}}));
    objects.push_back(Object(kAdmissionPolicyBindingResource, {"", name}, {{"spec", json(kubeapi::PolicyBindingSpec(name))}}));
  }
  objects.push_back(Object(kClusterRole, {"", watch}, {{"rules", kubeapi::MemberWatchRules()}}));
  json work_rules = kubeapi::MemberWorkRules();
  if (options.owner_references_enforced) work_rules.push_back(json(kubeapi::OwnerReferencesRule()));
  objects.push_back(Object(kClusterRole, {"", work}, {{"rules", std::move(work_rules)}}));
  objects.push_back(Binding(options, watch, ""));
  for (const std::string& ns : options.job_namespaces) objects.push_back(Binding(options, work, ns));
  if (options.job_namespaces.empty()) objects.push_back(Binding(options, work, ""));
  const std::string renew = absl::StrCat(options.account, "-renew");
  objects.push_back(Object(kRole, {options.member_namespace, renew}, {{"rules", kubeapi::MemberTokenRules(options.account)}}));
  objects.push_back(Binding(options, renew, options.member_namespace, kRole));
  objects.push_back(Object(kSecretResource, TokenSecret(options), {{"type", "Opaque"}}));
  return objects;
}

std::string MemberKubeconfig(const AddClusterOptions& options, const kube::ClientConfig& reached, const std::string& server,
                             const std::string& ca_pem, const std::string& token) {
  json cluster = {{"server", server}};
  if (!ca_pem.empty()) cluster["certificate-authority-data"] = absl::Base64Escape(ca_pem);
  if (!reached.tls_server_name.empty()) cluster["tls-server-name"] = reached.tls_server_name;
  const json config = {
      {"apiVersion", "v1"},
      {"kind", "Config"},
      {"current-context", options.name},
      {"clusters", json::array({{{"name", options.name}, {"cluster", std::move(cluster)}}})},
      {"users", json::array({{{"name", options.account}, {"user", {{"token", token}}}}})},
      {"contexts", json::array({{{"name", options.name}, {"context", {{"cluster", options.name}, {"user", options.account}}}}})}};
  return config.dump(2);
}

std::vector<ClusterObject> HubObjects(const AddClusterOptions& options, const std::string& kubeconfig) {
  ClusterObject secret = Object(kSecretResource, {options.hub_namespace, options.name},
                                {{"type", "Opaque"}, {"data", {{"kubeconfig", absl::Base64Escape(kubeconfig)}}}});
  secret.body["metadata"]["labels"][kubeapi::kRenewToken] = "true";
  return {std::move(secret), Object(kFusionClusterResource, {"", options.name},
                                    {{"spec", {{"kubeConfig", {{"location", options.name}, {"key", "kubeconfig"}}}}}})};
}

}  // namespace fusionllm::cli
