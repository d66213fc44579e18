#include "lib/kubeapi/pod_policy.h"

#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace fusionllm::kubeapi {
namespace {

using nlohmann::ordered_json;

ordered_json Validation(const std::string& expression, const std::string& message) {
  return {{"expression", expression}, {"message", message}, {"reason", "Forbidden"}};
}

// True where `field` of `of` is not there, or false.
std::string NotSet(const std::string& of, const std::string& field) {
  return absl::StrCat("(!has(", of, ".", field, ") || !", of, ".", field, ")");
}

// For each container of the Pod, those that run before it included.
std::string ForAll(const std::string& holds) {
  return absl::StrCat("object.spec.containers.all(c, ", holds,
                      ") && (!has(object.spec.initContainers) || object.spec.initContainers.all(c, ", holds, "))");
}

ordered_json Spec(const PolicySubject& subject, const std::vector<std::string>& resources, const std::vector<std::string>& operations,
                  ordered_json validations) {
  const ordered_json rule = {{"apiGroups", {""}}, {"apiVersions", {"v1"}}, {"operations", operations}, {"resources", resources}};
  return {{"failurePolicy", "Fail"},
          {"matchConstraints", {{"resourceRules", ordered_json::array({rule})}}},
          {"matchConditions", ordered_json::array({{{"name", "by-the-operator"},
                                                    {"expression", absl::StrCat("request.userInfo.username == 'system:serviceaccount:",
                                                                                subject.account_namespace, ":", subject.account, "'")}}})},
          {"validations", std::move(validations)}};
}

// The label stands on it before: no one gets at another's Secret by putting it there.
std::string IsRenewed(const PolicySubject& subject) {
  return absl::StrCat("(request.resource.resource == 'secrets' && request.operation == 'UPDATE' && request.namespace == '",
                      subject.account_namespace, "' && has(oldObject.metadata.labels) && '", kRenewToken,
                      "' in oldObject.metadata.labels && oldObject.metadata.labels['", kRenewToken, "'] == 'true')");
}

}  // namespace

ordered_json PodPolicySpec(const PolicySubject& subject) {
  const std::string own = NotSet("object.spec", "hostNetwork");
  const std::string pid = NotSet("object.spec", "hostPID");
  const std::string ipc = NotSet("object.spec", "hostIPC");
  const std::string unprivileged = absl::StrCat("!has(c.securityContext) || ", NotSet("c.securityContext", "privileged"));
  const std::string no_capabilities =
      "!has(c.securityContext) || !has(c.securityContext.capabilities) || !has(c.securityContext.capabilities.add) || "
      "size(c.securityContext.capabilities.add) == 0";
  const std::string no_host_process =
      "!has(c.securityContext) || !has(c.securityContext.windowsOptions) || " + NotSet("c.securityContext.windowsOptions", "hostProcess");
  std::vector<std::string> accounts = {"", "default"};
  accounts.insert(accounts.end(), subject.service_accounts.begin(), subject.service_accounts.end());
  const std::string listed =
      absl::StrJoin(accounts, ", ", [](std::string* out, const std::string& name) { absl::StrAppend(out, "'", name, "'"); });
  return Spec(subject, {"pods"}, {"CREATE"},
              ordered_json::array(
                  {Validation(absl::StrCat(own, " && ", pid, " && ", ipc), "a Pod of a job may not use hostNetwork, hostPID or hostIPC"),
                   Validation("!has(object.spec.volumes) || object.spec.volumes.all(v, !has(v.hostPath))",
                              "a Pod of a job may not mount folders of its node (hostPath)"),
                   Validation(ForAll(unprivileged), "a container of a job may not be privileged"),
                   Validation(ForAll(no_capabilities), "a container of a job may not add capabilities"),
                   Validation(absl::StrCat(ForAll(no_host_process),
                                           " && (!has(object.spec.securityContext) || !has(object.spec.securityContext.windowsOptions) || ",
                                           NotSet("object.spec.securityContext.windowsOptions", "hostProcess"), ")"),
                              "a container of a job may not be a process of its node (hostProcess)"),
                   Validation(absl::StrCat("!has(object.spec.serviceAccountName) || object.spec.serviceAccountName in [", listed, "]"),
                              "a Pod of a job may use the service account default of its namespace alone, or one that the cluster's admin "
                              "has allowed for jobs")}));
}

ordered_json PlacePolicySpec(const PolicySubject& subject) {
  const std::string renewed = subject.renews_tokens ? absl::StrCat(" || ", IsRenewed(subject)) : "";
  return Spec(subject, {"pods", "services", "secrets", "configmaps"}, {"CREATE", "UPDATE"},
              ordered_json::array(
                  {Validation("!request.namespace.startsWith('kube-')", "jobs may have nothing in the namespaces of Kubernetes itself"),
                   // What the operator remembers of jobs is in ConfigMaps of its own namespace.
                   Validation(absl::StrCat("request.resource.resource == 'configmaps' || request.namespace != '", subject.account_namespace,
                                           "'", renewed),
                              "jobs may have nothing in the namespace of the operator's account")}));
}

ordered_json ChangePolicySpec(const PolicySubject& subject) {
  const std::string renewed = subject.renews_tokens ? absl::StrCat(" || ", IsRenewed(subject)) : "";
  return Spec(subject, {"pods", "services", "secrets", "configmaps"}, {"UPDATE", "DELETE"},
              ordered_json::array({Validation(
                  absl::StrCat("(has(oldObject.metadata.labels) && 'fusionllm.io/origin' in oldObject.metadata.labels)", renewed),
                  "the operator's account may change and delete what an operator made alone")}));
}

ordered_json TokenPolicySpec(const PolicySubject& subject, const std::string& secret, int64_t longest_s) {
  return Spec(
      subject, {"serviceaccounts/token"}, {"CREATE"},
      ordered_json::array({Validation(absl::StrCat("has(object.spec.boundObjectRef) && has(object.spec.boundObjectRef.kind) && "
                                                   "has(object.spec.boundObjectRef.name) && object.spec.boundObjectRef.kind == 'Secret' && "
                                                   "object.spec.boundObjectRef.name == '",
                                                   secret, "'"),
                                      absl::StrCat("the account may have tokens alone that end with the Secret ", secret)),
                           Validation(absl::StrCat("object.spec.expirationSeconds <= ", longest_s),
                                      absl::StrCat("the account may have tokens alone that end within ", longest_s, " seconds"))}));
}

ordered_json PolicyBindingSpec(const std::string& policy) { return {{"policyName", policy}, {"validationActions", {"Deny"}}}; }

bool IsSystemNamespace(const std::string& ns) { return absl::StartsWith(ns, "kube-"); }

}  // namespace fusionllm::kubeapi
