#include "lib/kubeapi/rights.h"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace fusionllm::kubeapi {
namespace {

using Json = nlohmann::ordered_json;
using Words = std::vector<std::string>;

Json Rule(const Words& resources, const Words& verbs, const Words& names = {}) {
  Json rule = {{"apiGroups", {""}}, {"resources", resources}};
  if (!names.empty()) rule["resourceNames"] = names;
  rule["verbs"] = verbs;
  return rule;
}

}  // namespace

Json MemberWatchRules() {
  return Json::array({// Nodes, and pods of others, for the room that there is.
                      Rule({"pods", "configmaps", "nodes"}, {"list", "watch"}),
                      // Its UID tells a cluster that is registered twice, and names the hub in what is made in members.
                      Rule({"namespaces"}, {"get"}, {"kube-system"})});
}

Json MemberWorkRules() {
  return Json::array({Rule({"pods"}, {"create", "delete"}), Rule({"configmaps"}, {"get", "create", "patch", "delete"}),
                      Rule({"secrets"}, {"get", "create", "patch"}),
                      // Whether there are those that Pods name.
                      Rule({"persistentvolumeclaims"}, {"get"}),
                      // What keeps a Pod that does not start: a volume that cannot be mounted is told nowhere else.
                      Rule({"events"}, {"list"}),
                      // Of executors that those of other clusters dial.
                      Rule({"services"}, {"get", "create", "patch", "delete"})});
}

Json MemberTokenRules(const std::string& account) { return Json::array({Rule({"serviceaccounts/token"}, {"create"}, {account})}); }

Json OwnerReferencesRule() { return Rule({"configmaps/finalizers"}, {"update"}); }

}  // namespace fusionllm::kubeapi
