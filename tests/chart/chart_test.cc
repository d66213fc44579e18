// The helm chart without a cluster: what helm makes of it for different values, and which values it refuses. e2e/scenarios installs it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/base/testing/temp_folder.h"
#include "tests/chart/helm_chart.h"

namespace fusionllm {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

TEST_F(ChartTest, HelmFindsNothingToComplainOf) {
  for (const char* options :
       {"", "--set role=member", "--set networkPolicy.enabled=true,crds.install=false", "--set scheduler.enabled=true",
        "--set grafana.dashboards.enabled=true,metrics.prometheusRule.enabled=true"}) {
    const Outcome outcome = Helm(absl::StrCat("lint --strict '", ChartFolder(), "' --kube-version 1.34 ", WithNamespaces(options)));
    EXPECT_EQ(outcome.code, 0) << options << "\n" << outcome.text;
  }
}

std::string DefinitionFile(const YAML::Node& crd) {
  return absl::StrCat(SourceFolder(), "/crds/fusionllm.io_", crd["spec"]["names"]["plural"].as<std::string>(), ".yaml");
}

TEST_F(ChartTest, AHubHasTheOperatorAndItsDefinitions) {
  const std::vector<YAML::Node> objects = Objects("");
  EXPECT_THAT(Kinds(objects),
              UnorderedElementsAre("ServiceAccount", "ConfigMap", "CustomResourceDefinition", "CustomResourceDefinition", "ClusterRole",
                                   "ClusterRole", "ClusterRole", "ClusterRole", "ClusterRole", "ClusterRoleBinding", "ClusterRoleBinding",
                                   "Role", "RoleBinding", "Service", "Deployment", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicy",
                                   "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicyBinding",
                                   "ValidatingAdmissionPolicyBinding", "Job", "ServiceAccount", "Role", "RoleBinding", "Pod"))
      << "the last four are those of helm test";
  for (const YAML::Node& crd : OfKind(objects, "CustomResourceDefinition")) {
    EXPECT_EQ(crd["metadata"]["annotations"]["helm.sh/resource-policy"].as<std::string>(), "keep");
    const YAML::Node original = YAML::LoadFile(DefinitionFile(crd));
    EXPECT_EQ(NameOf(crd), NameOf(original));
    EXPECT_EQ(YAML::Dump(crd["spec"]), YAML::Dump(original["spec"])) << "a field of a definition was lost or changed";
  }
}

TEST_F(ChartTest, DefinitionsCanBeHadWithoutTheOperator) {
  const std::string chart = absl::StrCat("'", SourceFolder(), "/helm/fusion-crds' --kube-version 1.34 ");
  const Outcome lint = Helm("lint --strict " + chart);
  EXPECT_EQ(lint.code, 0) << lint.text;
  const auto rendered = [&](const std::string& options) { return ObjectsOf(Helm(absl::StrCat("template kinds ", chart, options))); };
  const std::vector<YAML::Node> objects = rendered("--set commonLabels.team=ml");
  EXPECT_THAT(Kinds(objects), UnorderedElementsAre("CustomResourceDefinition", "CustomResourceDefinition"));
  for (const YAML::Node& crd : objects) {
    EXPECT_EQ(crd["metadata"]["annotations"]["helm.sh/resource-policy"].as<std::string>(), "keep");
    EXPECT_EQ(crd["metadata"]["labels"]["team"].as<std::string>(), "ml");
    const YAML::Node original = YAML::LoadFile(DefinitionFile(crd));
    EXPECT_EQ(NameOf(crd), NameOf(original));
    EXPECT_EQ(YAML::Dump(crd["spec"]), YAML::Dump(original["spec"])) << "a field of a definition was lost or changed";
  }
  for (const YAML::Node& crd : rendered("--set keep=false")) EXPECT_FALSE(crd["metadata"]["annotations"].IsDefined());
  EXPECT_NE(Helm("template kinds " + chart + "--set kep=false").code, 0);
}

TEST_F(ChartTest, DefinitionsCanStayAwayOrGoWithTheRelease) {
  EXPECT_THAT(Kinds(Objects("--set crds.install=false")), Not(Contains("CustomResourceDefinition")));
  for (const YAML::Node& crd : OfKind(Objects("--set crds.keep=false"), "CustomResourceDefinition")) {
    EXPECT_FALSE(crd["metadata"]["annotations"].IsDefined());
  }
}

void ExpectRestricted(const YAML::Node& pod, const std::string& which) {
  EXPECT_TRUE(pod["securityContext"]["runAsNonRoot"].as<bool>()) << which;
  EXPECT_EQ(pod["securityContext"]["seccompProfile"]["type"].as<std::string>(), "RuntimeDefault") << which;
  for (const YAML::Node& container : pod["containers"]) {
    const YAML::Node security = container["securityContext"];
    EXPECT_FALSE(security["allowPrivilegeEscalation"].as<bool>()) << which;
    EXPECT_TRUE(security["readOnlyRootFilesystem"].as<bool>()) << which;
    EXPECT_EQ(security["capabilities"]["drop"][0].as<std::string>(), "ALL") << which;
  }
}

TEST_F(ChartTest, PodsAreRestricted) {
  const std::vector<YAML::Node> objects = Objects("");
  ExpectRestricted(OfKind(objects, "Deployment").at(0)["spec"]["template"]["spec"], "the operator");
  const std::vector<YAML::Node> two = Objects("--set scheduler.enabled=true");
  ExpectRestricted(OfKind(two, "Deployment").at(0)["spec"]["template"]["spec"], "the operator with a scheduler");
  ExpectRestricted(OfKind(objects, "Pod").at(0)["spec"], "the test");
  ExpectRestricted(OfKind(objects, "Job").at(0)["spec"]["template"]["spec"], "the hook");
}

TEST_F(ChartTest, ImagesAreOfTheChartsVersionByDefault) {
  EXPECT_THAT(Arguments(""),
              ::testing::IsSupersetOf({"localhost/fusionllm/operator:0.1.0", "--broker-image=localhost/fusionllm/broker:0.1.0",
                                       "--scheduler-image=localhost/fusionllm/scheduler:0.1.0",
                                       "--executor-image=localhost/fusionllm/executor:0.1.0",
                                       "--executor-cuda-image=localhost/fusionllm/executor-cuda:0.1.0"}));
  EXPECT_THAT(Arguments("--set image.registry=r.io/x,image.tag=v7,image.executor=e@sha256:12,operator.hubAddress=10.0.0.1"),
              ::testing::IsSupersetOf({"r.io/x/operator:v7", "--broker-image=r.io/x/broker:v7", "--executor-image=e@sha256:12",
                                       "--hub-address=10.0.0.1", "--namespace=system"}));
}

TEST_F(ChartTest, AnImageCanBeHeldToItsBytes) {
  const std::string digest = "sha256:" + std::string(64, 'a');
  const std::string pinned = absl::StrCat("--set image.registry=r.io/x,image.tag=v7,image.executor=e:1,image.digests.executor=", digest);
  for (const char* name : {"operator", "broker", "scheduler", "executor-cuda"}) {
    const std::string key = name == std::string("executor-cuda") ? "executorCuda" : name;
    const std::vector<std::string> arguments = Arguments(absl::StrCat(pinned, ",image.digests.", key, "=", digest));
    const std::string image = absl::StrCat("r.io/x/", name, "@", digest);
    EXPECT_THAT(arguments, Contains(key == "operator" ? image : absl::StrCat("--", name, "-image=", image)));
    EXPECT_THAT(arguments, Contains("--executor-image=e:1")) << "a whole reference says all";
    EXPECT_EQ(std::count_if(arguments.begin(), arguments.end(), [](const std::string& one) { return absl::StrContains(one, ":v7"); }), 3);
  }
}

// It reads what users write: nobody outside of the Pod reaches it, and it has no account.
TEST_F(ChartTest, ASchedulerBesideTheOperatorIsOnLoopbackAndHasNoToken) {
  EXPECT_THAT(Arguments(""), ::testing::Each(Not(HasSubstr("--scheduler="))));
  const std::string on = "--set scheduler.enabled=true,scheduler.port=7100,scheduler.resources.limits.memory=2Gi";
  const std::string address = absl::StrCat("127.0.0.1:", 7100);
  EXPECT_THAT(Arguments(on), Contains(absl::StrCat("--scheduler=", address)));
  const YAML::Node pod = OfKind(Objects(on), "Deployment").at(0)["spec"]["template"]["spec"];
  EXPECT_FALSE(pod["automountServiceAccountToken"].as<bool>());
  ASSERT_EQ(pod["containers"].size(), 2);
  // After that of its settings.
  EXPECT_EQ(pod["containers"][0]["volumeMounts"][1]["name"].as<std::string>(), pod["volumes"][1]["name"].as<std::string>());
  EXPECT_TRUE(pod["volumes"][1]["projected"].IsDefined());
  const YAML::Node scheduler = pod["containers"][1];
  EXPECT_EQ(scheduler["image"].as<std::string>(), "localhost/fusionllm/scheduler:0.1.0");
  EXPECT_EQ(scheduler["args"][0].as<std::string>(), absl::StrCat("--listen=", address));
  EXPECT_EQ(scheduler["resources"]["limits"]["memory"].as<std::string>(), "2Gi");
  EXPECT_FALSE(scheduler["volumeMounts"].IsDefined());
  EXPECT_FALSE(scheduler["ports"].IsDefined());
  const YAML::Node alone = OfKind(Objects(""), "Deployment").at(0)["spec"]["template"]["spec"];
  EXPECT_TRUE(alone["automountServiceAccountToken"].as<bool>());
  ASSERT_EQ(alone["volumes"].size(), 1);
  EXPECT_EQ(alone["volumes"][0]["name"].as<std::string>(), "config");
}

// What operator/ asks API servers for; the end-to-end scenario compares the roles with an audit log. A right more is a right to be stolen.
TEST_F(ChartTest, AHubMayDoWhatItDoesAndNoMore) {
  const auto rights = RightsByRole(Objects("--set rbac.aggregateUserRoles=false"));
  ASSERT_EQ(rights.size(), 4);  // that of helm test is a hook's
  EXPECT_THAT(rights.at("fusion-fusionllm-own"),
              UnorderedElementsAre("create leases", "get leases", "update leases", "get secrets", "list secrets", "watch secrets",
                                   "patch secrets", "create configmaps", "delete configmaps"));
  EXPECT_THAT(rights.at("fusion-fusionllm-watch"),
              UnorderedElementsAre("list pods", "watch pods", "list configmaps", "watch configmaps", "list fusionjobs", "watch fusionjobs",
                                   "list fusionclusters", "watch fusionclusters", "patch fusionclusters/status", "list nodes",
                                   "watch nodes", "get namespaces"));
  EXPECT_THAT(rights.at("fusion-fusionllm-work"),
              UnorderedElementsAre("create pods", "delete pods", "get configmaps", "create configmaps", "patch configmaps",
                                   "delete configmaps", "get secrets", "create secrets", "patch secrets", "get services", "create services",
                                   "patch services", "delete services", "get persistentvolumeclaims", "list events", "create events",
                                   "patch events", "patch fusionjobs", "delete fusionjobs", "patch fusionjobs/status"));
}

TEST_F(ChartTest, AMemberGivesWhatItsHubNeedsAndNoMore) {
  const std::vector<YAML::Node> objects = Objects("--set role=member");
  EXPECT_THAT(Kinds(objects), UnorderedElementsAre("ServiceAccount", "Secret", "ClusterRole", "ClusterRole", "ClusterRoleBinding",
                                                   "ClusterRoleBinding", "Role", "RoleBinding", "ValidatingAdmissionPolicy",
                                                   "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicy",
                                                   "ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicyBinding",
                                                   "ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicyBinding"));
  const auto rights = RightsByRole(objects);
  EXPECT_THAT(rights.at("fusion-fusionllm-watch"), UnorderedElementsAre("list pods", "watch pods", "list configmaps", "watch configmaps",
                                                                        "list nodes", "watch nodes", "get namespaces"));
  EXPECT_THAT(rights.at("fusion-fusionllm-work"),
              UnorderedElementsAre("create pods", "delete pods", "get configmaps", "create configmaps", "patch configmaps",
                                   "delete configmaps", "get secrets", "create secrets", "patch secrets", "get services", "create services",
                                   "patch services", "delete services", "get persistentvolumeclaims", "list events"));
}

TEST_F(ChartTest, WhereOwnersAreGuardedTheRightToTheirFinalizersIsGiven) {
  for (const char* role : {"hub", "member"}) {
    const std::string values = absl::StrCat("--set role=", role);
    EXPECT_THAT(RightsByRole(Objects(values)).at("fusion-fusionllm-work"), Not(Contains("update configmaps/finalizers"))) << role;
    const auto rights = RightsByRole(Objects(values + ",rbac.ownerReferencesEnforced=true"));
    EXPECT_THAT(rights.at("fusion-fusionllm-work"), Contains("update configmaps/finalizers")) << role;
    EXPECT_THAT(rights.at("fusion-fusionllm-watch"), Not(Contains("update configmaps/finalizers"))) << role;
  }
}

TEST_F(ChartTest, SecretsCanBeClosedOutsideOfJobNamespaces) {
  const std::vector<YAML::Node> objects = Objects("--set 'rbac.jobNamespaces={team-a,team-b}'");
  for (const YAML::Node& binding : OfKind(objects, "ClusterRoleBinding")) {
    EXPECT_EQ(binding["roleRef"]["name"].as<std::string>(), "fusion-fusionllm-watch");
  }
  std::vector<std::string> bound;
  for (const YAML::Node& binding : OfKind(objects, "RoleBinding")) {
    bound.push_back(absl::StrCat(binding["metadata"]["namespace"].as<std::string>(), ":", binding["roleRef"]["name"].as<std::string>()));
  }
  // Events of FusionClusters, which have no namespace, are in `default`.
  EXPECT_THAT(bound, UnorderedElementsAre("team-a:fusion-fusionllm-work", "team-b:fusion-fusionllm-work", "system:fusion-fusionllm-own",
                                          "system:fusion-fusionllm-test", "default:fusion-fusionllm-cluster-events"));
}

TEST_F(ChartTest, WithoutAWordWhereJobsAreNothingIsMade) {
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"--set rbac.allNamespaces=false", "name the namespaces of jobs, where alone the operator may make Pods and read Secrets"},
      {"--set rbac.allNamespaces=true --set 'rbac.jobNamespaces={a}'", "leave out one of the two"},
      {"--set rbac.allNamespaces=true --set 'watchNamespaces={a}'", "leave out one of the two"},
      {"--set 'rbac.jobNamespaces={a,kube-system}'", "kube-system is Kubernetes' own namespace"},
      {"--set 'rbac.jobNamespaces={kube-node-lease}'", "kube-node-lease is Kubernetes' own namespace"},
      {"--set 'watchNamespaces={kube-public}'", "kube-public is Kubernetes' own namespace"},
      {"--set 'rbac.jobNamespaces={a,system}'", "system is the operator's own namespace"}};
  for (const char* role : {" --set role=hub", " --set role=member"}) {
    for (const auto& [options, said] : wrong) {
      const Outcome outcome = Render(options + role);
      EXPECT_NE(outcome.code, 0) << options << role;
      EXPECT_THAT(outcome.text, HasSubstr(said)) << options << role;
    }
    EXPECT_EQ(Render(absl::StrCat("--set rbac.allNamespaces=false,rbac.create=false", role)).code, 0) << "somebody else gives the rights";
  }
}

TEST_F(ChartTest, OptionsAddTheirObjects) {
  const std::string monitors =
      "--set metrics.serviceMonitor.enabled=true,metrics.podMonitor.enabled=true,metrics.podMonitor.labels.release=p";
  EXPECT_THAT(Kinds(Objects(monitors)), Not(Contains("ServiceMonitor"))) << "the cluster knows no such kind";
  const std::vector<YAML::Node> objects = Objects(monitors + " --api-versions monitoring.coreos.com/v1");
  EXPECT_THAT(Kinds(objects), Contains("ServiceMonitor"));
  EXPECT_EQ(OfKind(objects, "PodMonitor").at(0)["metadata"]["labels"]["release"].as<std::string>(), "p");
  EXPECT_THAT(Kinds(Objects("--set networkPolicy.enabled=true")), Contains("NetworkPolicy"));
  const YAML::Node policy =
      OfKind(Objects("--set networkPolicy.enabled=true,operator.config.scheduler=plans.lab:7202"), "NetworkPolicy").at(0);
  const YAML::Node asked = policy["spec"]["egress"][policy["spec"]["egress"].size() - 1];
  EXPECT_EQ(asked["ports"][0]["port"].as<int>(), 7202) << "a scheduler elsewhere";
  EXPECT_THAT(Kinds(Objects("--set operator.replicas=2")), Contains("PodDisruptionBudget"));
  const std::vector<YAML::Node> bare = Objects("--set rbac.create=false,serviceAccount.create=false,serviceAccount.name=own");
  EXPECT_THAT(OfKind(bare, "ClusterRole"), IsEmpty());
  EXPECT_EQ(OfKind(bare, "Deployment").at(0)["spec"]["template"]["spec"]["serviceAccountName"].as<std::string>(), "own");
}

// Dashboards and rules choose jobs by the label that Prometheus makes of this one.
TEST_F(ChartTest, SeriesOfJobsCarryTheirName) {
  const std::vector<YAML::Node> objects = Objects("--set metrics.podMonitor.enabled=true --api-versions monitoring.coreos.com/v1");
  std::vector<std::string> labels;
  for (const YAML::Node& label : OfKind(objects, "PodMonitor").at(0)["spec"]["podTargetLabels"]) labels.push_back(label.as<std::string>());
  EXPECT_THAT(labels, Contains("fusionllm.io/job"));
}

TEST_F(ChartTest, DashboardsAreThoseOfTheFilesUnchanged) {
  for (const YAML::Node& map : OfKind(Objects(""), "ConfigMap")) {
    EXPECT_FALSE(map["metadata"]["labels"]["grafana_dashboard"].IsDefined()) << NameOf(map);
  }
  const std::vector<YAML::Node> member = OfKind(Objects("--set role=member,grafana.dashboards.enabled=true"), "ConfigMap");
  ASSERT_EQ(member.size(), 1u) << "of the operator and of all jobs nothing is told there";
  EXPECT_EQ(NameOf(member[0]), "fusion-fusionllm-dashboard-job");
  const std::vector<YAML::Node> maps =
      OfKind(Objects("--set grafana.dashboards.enabled=true,grafana.dashboards.folder=ML,grafana.dashboards.namespace=watch"), "ConfigMap");
  std::set<std::string> names;
  for (const YAML::Node& map : maps) {
    if (NameOf(map) == "fusion-fusionllm-config") continue;
    EXPECT_EQ(map["metadata"]["labels"]["grafana_dashboard"].as<std::string>(), "1");
    EXPECT_EQ(map["metadata"]["annotations"]["grafana_folder"].as<std::string>(), "ML");
    EXPECT_EQ(map["metadata"]["namespace"].as<std::string>(), "watch");
    for (const auto& entry : map["data"]) {
      const std::string name = entry.first.as<std::string>().substr(std::string("fusionllm-").size());
      names.insert(name);
      EXPECT_EQ(entry.second.as<std::string>() + "\n", base::ReadWholeFile(ChartFolder() + "/dashboards/" + name)) << name;
    }
  }
  EXPECT_THAT(names, ::testing::UnorderedElementsAreArray(FileNames(ChartFolder() + "/dashboards")));
}

TEST_F(ChartTest, RulesAreThoseOfTheFiles) {
  const std::string on = "--set metrics.prometheusRule.enabled=true,metrics.prometheusRule.labels.release=p";
  EXPECT_THAT(Kinds(Objects(on)), Not(Contains("PrometheusRule"))) << "the cluster knows no such kind";
  const std::string known = " --api-versions monitoring.coreos.com/v1 ";
  const YAML::Node rule = OfKind(Objects(on + known), "PrometheusRule").at(0);
  EXPECT_EQ(rule["metadata"]["labels"]["release"].as<std::string>(), "p");
  const auto sorted = [](const YAML::Node& node) {  // helm orders keys, and quotes as it likes
    std::map<std::string, std::string> values;
    for (const auto& entry : node) values[entry.first.as<std::string>()] = entry.second.as<std::string>();
    return values;
  };
  std::map<std::string, YAML::Node> written;
  for (const std::string& name : FileNames(ChartFolder() + "/rules")) {
    for (const YAML::Node& group : YAML::LoadFile(ChartFolder() + "/rules/" + name)["groups"]) {
      for (const YAML::Node& one : group["rules"]) written[(one["alert"] ? one["alert"] : one["record"]).as<std::string>()].reset(one);
    }
  }
  std::set<std::string> rendered;
  for (const YAML::Node& group : rule["spec"]["groups"]) {
    for (const YAML::Node& one : group["rules"]) {
      const std::string name = (one["alert"] ? one["alert"] : one["record"]).as<std::string>();
      rendered.insert(name);
      ASSERT_TRUE(written.contains(name)) << name;
      const YAML::Node& original = written.at(name);
      EXPECT_EQ(one["expr"].as<std::string>(), original["expr"].as<std::string>()) << name;
      if (original["for"]) {
        EXPECT_EQ(one["for"].as<std::string>(), original["for"].as<std::string>()) << name;
      }
      auto annotations = sorted(one["annotations"]);
      if (one["alert"]) {
        EXPECT_EQ(annotations["runbook_url"], absl::StrCat("docs/reference/alerts.md#", absl::AsciiStrToLower(name)));
        annotations.erase("runbook_url");
      }
      EXPECT_EQ(annotations, sorted(original["annotations"])) << name;
      EXPECT_EQ(sorted(one["labels"]), sorted(original["labels"])) << name;
    }
  }
  EXPECT_EQ(rendered.size(), written.size());
}

// Executors that a member lends are seen by the Prometheus of that cluster alone.
TEST_F(ChartTest, InAMemberExecutorsAreMonitoredIfAsked) {
  const std::string member =
      "--set role=member,operator.origin=lab --set 'rbac.jobNamespaces={training}' --api-versions monitoring.coreos.com/v1 ";
  EXPECT_THAT(Kinds(Objects(member)), Not(::testing::AnyOf(Contains("PodMonitor"), Contains("PrometheusRule"))));
  const std::vector<YAML::Node> objects =
      Objects(member + "--set metrics.serviceMonitor.enabled=true,metrics.podMonitor.enabled=true,metrics.prometheusRule.enabled=true");
  EXPECT_THAT(Kinds(objects), Not(Contains("ServiceMonitor"))) << "there is no operator";
  const YAML::Node monitor = OfKind(objects, "PodMonitor").at(0)["spec"];
  EXPECT_EQ(monitor["selector"]["matchLabels"]["fusionllm.io/origin"].as<std::string>(), "lab");
  EXPECT_EQ(monitor["namespaceSelector"]["matchNames"][0].as<std::string>(), "training");
  EXPECT_EQ(monitor["podMetricsEndpoints"][0]["port"].as<std::string>(), "metrics");
  std::vector<std::string> groups, written;
  for (const YAML::Node& group : OfKind(objects, "PrometheusRule").at(0)["spec"]["groups"])
    groups.push_back(group["name"].as<std::string>());
  for (const YAML::Node& group : YAML::LoadFile(ChartFolder() + "/rules/jobs.yaml")["groups"]) {
    written.push_back(group["name"].as<std::string>());
  }
  EXPECT_EQ(groups, written) << "that an operator is missing would be told of each member";
}

TEST_F(ChartTest, AlertsCanBeLeftOutAndLinkToWhatToDo) {
  const std::string options =
      "--set metrics.prometheusRule.enabled=true --set 'metrics.prometheusRule.disabled={FusionPlanMissed}' "
      "--set metrics.prometheusRule.runbookUrl=https://example.org/alerts.html --api-versions monitoring.coreos.com/v1";
  std::map<std::string, std::string> links;
  for (const YAML::Node& group : OfKind(Objects(options), "PrometheusRule").at(0)["spec"]["groups"]) {
    for (const YAML::Node& rule : group["rules"]) {
      if (rule["alert"]) links[rule["alert"].as<std::string>()] = rule["annotations"]["runbook_url"].as<std::string>();
    }
  }
  EXPECT_FALSE(links.contains("FusionPlanMissed"));
  EXPECT_EQ(links["FusionJobStalled"], "https://example.org/alerts.html#fusionjobstalled");
  const std::string none = "--set metrics.prometheusRule.enabled=true,metrics.prometheusRule.runbookUrl= ";
  EXPECT_THAT(Render(none + "--api-versions monitoring.coreos.com/v1").text, Not(HasSubstr("runbook_url")));
}

// Prometheus Operators take rules of the namespaces that they are told to look in.
TEST_F(ChartTest, RulesGoWhereTheyAreLookedFor) {
  const std::string on = "--api-versions monitoring.coreos.com/v1 --set metrics.prometheusRule.enabled=true";
  const auto place = [](const std::string& options) {
    return OfKind(Objects(options), "PrometheusRule").at(0)["metadata"]["namespace"].as<std::string>();
  };
  EXPECT_EQ(place(on), "system");
  EXPECT_EQ(place(on + ",metrics.prometheusRule.namespace=watch"), "watch");
}

TEST_F(ChartTest, WrongValuesAreRefusedByName) {
  const std::pair<const char*, const char*> wrong[] = {
      {"--set rolle=hub", "rolle"},
      {"--set role=satellite", "role"},
      {"--set operator.workers=0", "workers"},
      {"--set operator.workers=many", "workers"},
      {"--set operator.clusterName=Paris", "clusterName"},
      {"--set operator.clusterName=a-name-of-twenty-one-xx", "clusterName"},
      {"--set operator.logLevel=verbose", "logLevel"},
      {"--set image.pullPolicy=Sometimes", "pullPolicy"},
      {"--set image.repository=x", "repository"},
      {"--set image.digests.operator=v7", "operator"},
      {"--set image.digests.relay=sha256:0", "relay"},
      {"--set metrics.port=70000", "port"},
      {"--set scheduler.enabled=maybe", "enabled"},
      {"--set scheduler.address=scheduler:7002", "address"},
      {"--set crds.install=perhaps", "install"},
      {"--set uninstall.how=kill", "how"},
      {"--set 'watchNamespaces={A}'", "watchNamespaces"},
      {"--set operator.clientConnection.qps=0", "qps"},
      {"--set operator.clusterProfiles.provider=x", "provider"},
      {"--set 'operator.clusterProfiles.namespaces={A}'", "namespaces"},
      {"--set operator.clusterProfiles.providers[0].name=x", "execConfig"},
      {"--set-json 'operator.clusterProfiles.providers=[{\"name\":\"x\",\"execConfig\":{\"command\":\"x\"}}]'", "apiVersion"},
      {"--set operator.podDisruptionBudget.minAvailable=most", "minAvailable"},
      {"--set-json 'operator.topologySpreadConstraints=[{\"maxSkew\":1}]'", "topologySpreadConstraints"},
      {"--set-json 'operator.extraVolumeMounts=[{\"name\":\"a\"}]'", "extraVolumeMounts"},
      {"--set metrics.secure=true", "secure"},
      {"--set metrics.serviceMonitor.scrapeTimeout=soon", "scrapeTimeout"},
      {"--set 'networkPolicy.jobs.fromCIDRs={paris}'", "fromCIDRs"},
      {"--set metrics.prometheusRule.runbookUrl=alerts.md", "runbookUrl"},
      {"--set metrics.prometheusRule.namespace=Watch", "namespace"},
      {"--set 'metrics.prometheusRule.disabled={Stalled}'", "disabled"},
      {"--set grafana.dashboards.label=", "label"},
      {"--set grafana.dashboards.enabled=maybe", "enabled"},
      {"--set 'rbac.jobNamespaces={A}'", "jobNamespaces"},
      {"--set-string 'commonLabels.app\\.kubernetes\\.io/name=x'", "app.kubernetes.io/name"},
  };
  for (const auto& [options, field] : wrong) {
    const Outcome outcome = Render(options);
    EXPECT_NE(outcome.code, 0) << options << " was taken";
    EXPECT_THAT(outcome.text, HasSubstr("values don't meet the specifications of the schema")) << options;
    EXPECT_THAT(outcome.text, HasSubstr(field)) << options;
  }
}

TEST_F(ChartTest, LongNamesStayWithinTheirLimit) {
  const std::string release(53, 'r');  // the longest that helm takes
  const Outcome outcome = Helm(absl::StrCat("template ", release, " '", ChartFolder(), "' --kube-version 1.34 ", WithNamespaces("")));
  ASSERT_EQ(outcome.code, 0) << outcome.text;
  for (const YAML::Node& object : YAML::LoadAll(outcome.text)) {
    if (!object.IsMap()) continue;
    EXPECT_LE(NameOf(object).size(), 63) << NameOf(object);
  }
}

}  // namespace
}  // namespace fusionllm
