#include "lib/kubeapi/rights.h"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace fusionllm::kubeapi {
namespace {

using nlohmann::ordered_json;
using Words = std::vector<std::string>;

ordered_json PolicyRule(const Words& resources, const Words& verbs, const Words& names = {}) {
  ordered_json rule = {{"apiGroups", {""}}, {"resources", resources}};
  if (!names.empty()) rule["resourceNames"] = names;
  rule["verbs"] = verbs;
  return rule;
}

}  // namespace

ordered_json MemberWatchRules() {
  return ordered_json::array({// Nodes, and pods of others, for the room that there is.
                              PolicyRule({"pods", "configmaps", "nodes"}, {"list", "watch"}),
                              // Its UID tells a cluster that is registered twice, and names the hub in what is made in members.
                              PolicyRule({"namespaces"}, {"get"}, {"kube-system"})});
}

ordered_json MemberWorkRules() {
  return ordered_json::array({PolicyRule({"pods"}, {"create", "delete"}), PolicyRule({"configmaps"}, {"get", "create", "patch", "delete"}),
                              PolicyRule({"secrets"}, {"get", "create", "patch"}),
                              // Whether there are those that Pods name.
                              PolicyRule({"persistentvolumeclaims"}, {"get"}),
                              // What keeps a Pod that does not start: a volume that cannot be mounted is reported nowhere else.
                              PolicyRule({"events"}, {"list"}),
                              // Of executors that those of other clusters dial.
                              PolicyRule({"services"}, {"get", "create", "patch", "delete"})});
}

ordered_json MemberTokenRules(const std::string& account) {
  return ordered_json::array({PolicyRule({"serviceaccounts/token"}, {"create"}, {account})});
}

ordered_json OwnerReferencesRule() { return PolicyRule({"configmaps/finalizers"}, {"update"}); }

}  // namespace fusionllm::kubeapi
