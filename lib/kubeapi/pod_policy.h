// What the hub's operator may make in a cluster, beyond its rights (rights.h): who may write FusionJobs on the hub says what Pods of
// jobs are like, in members too, where he may have no rights. As ValidatingAdmissionPolicies (admissionregistration.k8s.io/v1), which bind
// the operator's account alone: the one source for the chart (helm/fusionllm/files/pod-policy.yaml is generated) and for `fusionctl cluster
// add`. Pod security standards say more, of all accounts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "nlohmann/json_fwd.hpp"

namespace fusionllm::kubeapi {

// Label, "true", of a Secret with a kubeconfig whose token the operator renews. `fusionctl cluster add` sets it.
inline constexpr char kRenewToken[] = "fusionllm.io/renew-token";
// Label of what a program made, and its value for `fusionctl`, which takes nothing over that somebody else did.
inline constexpr char kManagedByLabel[] = "app.kubernetes.io/managed-by", kFusionctlManager[] = "fusionctl";

// For which tokens of a member's account are asked for; policies allow no more.
inline constexpr absl::Duration kTokenLife = absl::Hours(24 * 30);

// Whom the policies bind, and what he may use.
struct PolicySubject {
  std::string account_namespace, account;
  std::vector<std::string> service_accounts;  // of Pods of jobs, besides the namespace's `default`
  // It renews tokens: in its own namespace it may change the Secrets that have the label kRenewToken.
  bool renews_tokens = false;
};

// Spec of a policy, by what follows the account's name in the policy's: Pods take nothing of their node and no foreign account.
nlohmann::ordered_json PodPolicySpec(const PolicySubject& subject);
// Nothing is made in the namespaces of Kubernetes itself (kube-*), nor Pods, Services or Secrets in that of the account.
nlohmann::ordered_json PlacePolicySpec(const PolicySubject& subject);
// What is changed or deleted has the label of what operators make. The answer to a PATCH is the object: without this a right to change
// Secrets would be one to read any of them.
nlohmann::ordered_json ChangePolicySpec(const PolicySubject& subject);
// Tokens that the account asks for live for `longest_s` seconds at most, and end with that Secret of its namespace.
nlohmann::ordered_json TokenPolicySpec(const PolicySubject& subject, const std::string& secret, int64_t longest_s);
// Of the binding that puts a policy in force.
nlohmann::ordered_json PolicyBindingSpec(const std::string& policy);

// Whether jobs may never be there, whatever the rights: kube-*.
bool IsSystemNamespace(const std::string& ns);

}  // namespace fusionllm::kubeapi
