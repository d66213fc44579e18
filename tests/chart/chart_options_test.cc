// What the chart's options add to it, and what each of them says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/kubeapi/pod_policy.h"
#include "operator/federation/access_providers.h"
#include "tests/chart/helm_chart.h"

namespace fusionllm {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

std::vector<std::string> Texts(const YAML::Node& list) {
  std::vector<std::string> texts;
  for (const YAML::Node& text : list) texts.push_back(text.as<std::string>());
  return texts;
}

YAML::Node PodOf(const YAML::Node& workload) { return workload["spec"]["template"]["spec"]; }

TEST_F(ChartTest, JobsAreStoppedBeforeTheOperatorGoes) {
  const YAML::Node hook = OfKind(Objects(""), "Job").at(0);
  EXPECT_EQ(hook["metadata"]["annotations"]["helm.sh/hook"].as<std::string>(), "pre-delete");
  EXPECT_EQ(hook["spec"]["backoffLimit"].as<int>(), 0);
  EXPECT_EQ(hook["spec"]["activeDeadlineSeconds"].as<int>(), 280) << "before helm's own five minutes, after its own patience";
  const YAML::Node pod = PodOf(hook);
  EXPECT_EQ(pod["serviceAccountName"].as<std::string>(), "fusion-fusionllm") << "the operator may do it, nobody else need be allowed";
  EXPECT_EQ(pod["containers"][0]["image"].as<std::string>(), "localhost/fusionllm/operator:0.1.0");
  EXPECT_THAT(Texts(pod["containers"][0]["args"]), IsSupersetOf({"--stop-jobs=suspend", "--stop-timeout-seconds=240"}));
}

TEST_F(ChartTest, JobsAreDeletedWhereTheirDefinitionGoesToo) {
  const auto arguments = [](const std::string& options) {
    return Texts(PodOf(OfKind(Objects(options), "Job").at(0))["containers"][0]["args"]);
  };
  EXPECT_THAT(arguments("--set crds.keep=false"), Contains("--stop-jobs=delete"));
  EXPECT_THAT(arguments("--set uninstall.how=delete,uninstall.timeoutSeconds=60"),
              IsSupersetOf({"--stop-jobs=delete", "--stop-timeout-seconds=60"}));
  EXPECT_THAT(arguments("--set 'rbac.jobNamespaces={a,b}'"), Contains("--watch-namespaces=a,b")) << "it may change no others";
}

TEST_F(ChartTest, JobsCanBeLeftAloneAtAnUninstall) {
  EXPECT_THAT(Kinds(Objects("--set uninstall.stopJobs=false")), Not(Contains("Job")));
  EXPECT_THAT(Kinds(Objects("--set role=member")), Not(Contains("Job"))) << "a member has no operator that could";
}

TEST_F(ChartTest, PodsOfJobsAreClosedInEachNamespaceButForEachOther) {
  const std::string on = "--set networkPolicy.jobs.enabled=true,operator.origin=lab ";
  const std::vector<YAML::Node> policies =
      OfKind(Objects(on + "--set 'rbac.jobNamespaces={a,b},networkPolicy.jobs.fromCIDRs={203.0.113.0/24}'"), "NetworkPolicy");
  std::vector<std::string> places;
  for (const YAML::Node& policy : policies) {
    places.push_back(absl::StrCat(policy["metadata"]["namespace"].as<std::string>(), "/", NameOf(policy)));
    const YAML::Node spec = policy["spec"];
    EXPECT_EQ(spec["podSelector"]["matchLabels"]["fusionllm.io/origin"].as<std::string>(), "lab");
    EXPECT_THAT(Texts(spec["policyTypes"]), ::testing::ElementsAre("Ingress")) << "what they dial is a job's own affair";
    const YAML::Node from = spec["ingress"][0]["from"];
    EXPECT_FALSE(from[0]["namespaceSelector"].IsDefined()) << "jobs of other namespaces are no peers";
    EXPECT_EQ(from[0]["podSelector"]["matchLabels"]["fusionllm.io/role"].as<std::string>(), "executor") << "a broker dials nobody";
    EXPECT_EQ(from[1]["ipBlock"]["cidr"].as<std::string>(), "203.0.113.0/24");
    // By the names that operator/manifests/run_objects.cc gives their ports.
    const bool executor = NameOf(policy) == "fusion-fusionllm-exec";
    EXPECT_EQ(spec["ingress"][0]["ports"][0]["port"].as<std::string>(), executor ? "executor" : "broker");
  }
  EXPECT_THAT(places, UnorderedElementsAre("a/fusion-fusionllm-exec", "a/fusion-fusionllm-broker", "b/fusion-fusionllm-exec",
                                           "b/fusion-fusionllm-broker"));
  EXPECT_EQ(OfKind(Objects("--set role=member,networkPolicy.jobs.enabled=true --set 'networkPolicy.jobs.namespaces={a}'"), "NetworkPolicy")
                .size(),
            2);
  const Outcome nowhere = Render(on);
  EXPECT_NE(nowhere.code, 0);
  EXPECT_THAT(nowhere.text, HasSubstr("a NetworkPolicy belongs to a namespace"));
}

TEST_F(ChartTest, AnOperatorThatListsForLongIsNotTakenForDead) {
  const auto probe = [](const std::string& options) {
    return PodOf(OfKind(Objects(options), "Deployment").at(0))["containers"][0]["startupProbe"];
  };
  const YAML::Node usual = probe("");
  EXPECT_EQ(usual["httpGet"]["path"].as<std::string>(), "/readyz");
  EXPECT_GT(usual["periodSeconds"].as<int>() * usual["failureThreshold"].as<int>(), 120) << "operator/main.cc gives up by itself then";
  EXPECT_EQ(probe("--set operator.startupProbe.failureThreshold=300")["failureThreshold"].as<int>(), 300);
}

TEST_F(ChartTest, APodIsPlacedAndFurnishedAsItsValuesSay) {
  const YAML::Node pod = PodOf(
      OfKind(
          Objects("--set scheduler.enabled=true "
                  "--set-json "
                  "'operator.topologySpreadConstraints=[{\"maxSkew\":1,\"topologyKey\":\"zone\",\"whenUnsatisfiable\":\"DoNotSchedule\"}]' "
                  "--set-json 'operator.extraVolumes=[{\"name\":\"ca\",\"configMap\":{\"name\":\"ca\"}}]' "
                  "--set-json 'operator.extraVolumeMounts=[{\"name\":\"ca\",\"mountPath\":\"/ca\"}]' "
                  "--set-json 'operator.extraEnv=[{\"name\":\"HTTPS_PROXY\",\"value\":\"http://proxy\"}]'"),
          "Deployment")
          .at(0));
  const YAML::Node spread = pod["topologySpreadConstraints"][0];
  EXPECT_EQ(spread["topologyKey"].as<std::string>(), "zone");
  EXPECT_EQ(spread["labelSelector"]["matchLabels"]["app.kubernetes.io/component"].as<std::string>(), "operator");
  ASSERT_EQ(pod["volumes"].size(), 3);
  EXPECT_EQ(pod["volumes"][2]["configMap"]["name"].as<std::string>(), "ca");
  EXPECT_EQ(pod["containers"][0]["volumeMounts"][2]["mountPath"].as<std::string>(), "/ca");
  EXPECT_EQ(pod["containers"][0]["env"][0]["name"].as<std::string>(), "HTTPS_PROXY");
  EXPECT_EQ(pod["containers"][0]["env"][1]["name"].as<std::string>(), "GLIBC_TUNABLES");
  EXPECT_FALSE(pod["containers"][1]["volumeMounts"].IsDefined()) << "the scheduler is given nothing of it";
}

TEST_F(ChartTest, TunablesOfAUserReplaceThoseOfTheChart) {
  const YAML::Node pod =
      PodOf(OfKind(Objects("--set-json 'operator.extraEnv=[{\"name\":\"GLIBC_TUNABLES\",\"value\":\"\"}]'"), "Deployment").at(0));
  ASSERT_EQ(pod["containers"][0]["env"].size(), 1);
  EXPECT_EQ(pod["containers"][0]["env"][0]["value"].as<std::string>(), "");
}

TEST_F(ChartTest, ASpreadThatNamesItsPodsIsLeftAsItIs) {
  const YAML::Node pod = PodOf(
      OfKind(Objects("--set-json "
                     "'operator.topologySpreadConstraints=[{\"maxSkew\":2,\"topologyKey\":\"zone\",\"whenUnsatisfiable\":\"DoNotSchedule\","
                     "\"labelSelector\":{\"matchLabels\":{\"a\":\"b\"}}}]'"),
             "Deployment")
          .at(0));
  const YAML::Node selector = pod["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"];
  EXPECT_EQ(selector.size(), 1);
  EXPECT_EQ(selector["a"].as<std::string>(), "b");
}

TEST_F(ChartTest, TheBudgetIsForSeveralReplicas) {
  const std::string three = "--set operator.replicas=3";
  const auto budget = [](const std::string& options) { return OfKind(Objects(options), "PodDisruptionBudget").at(0)["spec"]; };
  EXPECT_EQ(budget(three)["maxUnavailable"].as<int>(), 1);
  const YAML::Node least = budget(three + ",operator.podDisruptionBudget.minAvailable=50%");
  EXPECT_EQ(least["minAvailable"].as<std::string>(), "50%");
  EXPECT_FALSE(least["maxUnavailable"].IsDefined()) << "a server takes only one of them";
  EXPECT_THAT(Kinds(Objects("")), Not(Contains("PodDisruptionBudget"))) << "it would only hold up whoever drains the node";
  EXPECT_THAT(Kinds(Objects(three + ",operator.podDisruptionBudget.enabled=false")), Not(Contains("PodDisruptionBudget")));
}

constexpr char kProfiles[] =
    "--set operator.clusterProfiles.enabled=true --set-json 'operator.clusterProfiles.providers=[{\"name\":\"login\",\"execConfig\":"
    "{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"command\":\"/plugins/login\",\"args\":[\"a b\"]},"
    "\"profileSourcedCLIArgsPolicy\":\"Append\"}]' ";

TEST_F(ChartTest, AccessProvidersForClusterProfilesAreAFileOfTheOperator) {
  const std::vector<YAML::Node> objects = Objects(kProfiles);
  const YAML::Node file = Named(objects, "ConfigMap", "fusion-fusionllm-profiles")["data"]["providers.json"];
  const auto providers = op::federation::ParseAccessProviders(file.as<std::string>(), "providers.json");
  ASSERT_TRUE(providers.ok()) << providers.status();
  ASSERT_EQ(providers->size(), 1);
  EXPECT_EQ(providers->at(0).exec.command, "/plugins/login");
  EXPECT_THAT(providers->at(0).exec.args, ::testing::ElementsAre("a b"));
  EXPECT_TRUE(providers->at(0).append_args);
  const YAML::Node pod = PodOf(OfKind(objects, "Deployment").at(0));
  const YAML::Node volume = pod["volumes"][1], mount = pod["containers"][0]["volumeMounts"][1];  // after that of its settings
  EXPECT_EQ(volume["configMap"]["name"].as<std::string>(), "fusion-fusionllm-profiles");
  EXPECT_EQ(mount["name"].as<std::string>(), volume["name"].as<std::string>());
  const std::string settings = pod["containers"][0]["volumeMounts"][0]["mountPath"].as<std::string>();
  EXPECT_THAT(mount["mountPath"].as<std::string>(), Not(::testing::StartsWith(settings + "/")))
      << "nothing can be mounted in a read-only volume";
  EXPECT_THAT(Arguments(kProfiles),
              Contains(absl::StrCat("--cluster-profile-providers=", mount["mountPath"].as<std::string>(), "/providers.json")));
  const auto checksum = [](const std::string& options) {
    const YAML::Node deployment = OfKind(Objects(options), "Deployment").at(0);
    return deployment["spec"]["template"]["metadata"]["annotations"]["checksum/access-providers"].as<std::string>();
  };
  EXPECT_EQ(checksum(kProfiles), checksum(std::string(kProfiles) + "--set operator.workers=3"));
  EXPECT_NE(checksum(kProfiles), checksum(std::string(kProfiles) + "--set operator.clusterProfiles.providers[0].name=other"));
  const std::vector<YAML::Node> own = Objects("--set operator.clusterProfiles.enabled=true,operator.clusterProfiles.configMap=mine");
  EXPECT_EQ(PodOf(OfKind(own, "Deployment").at(0))["volumes"][1]["configMap"]["name"].as<std::string>(), "mine");
  for (const YAML::Node& map : OfKind(own, "ConfigMap")) EXPECT_EQ(NameOf(map), "fusion-fusionllm-config");
}

TEST_F(ChartTest, ClusterProfilesAreReadOnlyWhereAValueSaysSo) {
  const std::string right = "clusterprofiles";
  for (const auto& [role, rights] : RightsByRole(Objects(""))) EXPECT_THAT(rights, Not(Contains(HasSubstr(right)))) << role;
  EXPECT_THAT(Arguments(""), ::testing::Each(Not(HasSubstr("--cluster-profile-providers"))));
  const auto places = [](const std::vector<YAML::Node>& objects, const char* kind) {
    std::vector<std::string> found;
    for (const YAML::Node& object : OfKind(objects, kind)) {
      if (NameOf(object) == "fusion-fusionllm-profiles") found.push_back(object["metadata"]["namespace"].as<std::string>());
    }
    return found;
  };
  const std::vector<YAML::Node> usual = Objects(kProfiles);
  EXPECT_THAT(RightsByRole(usual).at("fusion-fusionllm-profiles"),
              UnorderedElementsAre("get clusterprofiles", "list clusterprofiles", "watch clusterprofiles"));
  EXPECT_THAT(places(usual, "Role"), ::testing::ElementsAre("system"));
  const std::vector<YAML::Node> some = Objects(std::string(kProfiles) + "--set 'operator.clusterProfiles.namespaces={fleet,lab}'");
  EXPECT_THAT(places(some, "Role"), UnorderedElementsAre("fleet", "lab"));
  EXPECT_THAT(places(some, "RoleBinding"), UnorderedElementsAre("fleet", "lab"));
  const Outcome nothing = Render("--set operator.clusterProfiles.enabled=true");
  EXPECT_NE(nothing.code, 0);
  EXPECT_THAT(nothing.text, HasSubstr("operator.clusterProfiles.enabled needs operator.clusterProfiles.providers"));
}

TEST_F(ChartTest, QueuesOfKueueTakeRightsThatAreGivenForThemAlone) {
  const auto of_kueue = [](const std::map<std::string, std::set<std::string>>& rights, const char* role) {
    std::vector<std::string> found;
    for (const std::string& right : rights.at(role)) {
      for (const char* resource : {"workloads", "resourceflavors", "workloadpriorityclasses"}) {
        if (right.find(resource) != std::string::npos) found.push_back(right);
      }
    }
    return found;
  };
  const auto without = RightsByRole(Objects(""));
  EXPECT_THAT(of_kueue(without, "fusion-fusionllm-watch"), ::testing::IsEmpty());
  EXPECT_THAT(of_kueue(without, "fusion-fusionllm-work"), ::testing::IsEmpty());
  EXPECT_FALSE(without.contains("fusion-fusionllm-kueue"));
  const auto everywhere = RightsByRole(Objects("--set operator.kueue.enabled=true"));
  EXPECT_THAT(of_kueue(everywhere, "fusion-fusionllm-watch"),
              UnorderedElementsAre("get resourceflavors", "get workloadpriorityclasses", "list workloads", "watch workloads"));
  EXPECT_THAT(of_kueue(everywhere, "fusion-fusionllm-work"),
              UnorderedElementsAre("create workloads", "patch workloads", "delete workloads", "patch workloads/status"));
  EXPECT_THAT(everywhere.at("fusion-fusionllm-kueue"), UnorderedElementsAre("get fusionjobs", "list fusionjobs", "watch fusionjobs"));
  const auto some = RightsByRole(Objects("--set operator.kueue.enabled=true --set 'watchNamespaces={a}'"));
  EXPECT_THAT(of_kueue(some, "fusion-fusionllm-watch"), UnorderedElementsAre("get resourceflavors", "get workloadpriorityclasses"));
  EXPECT_THAT(of_kueue(some, "fusion-fusionllm-work"), ::testing::IsSupersetOf({"list workloads", "watch workloads"}));
}

// The rights go with it: what the operator may not list it does not try to.
TEST_F(ChartTest, JobsOfSomeNamespacesAreWatchedAndNoOthers) {
  EXPECT_THAT(Arguments(""), ::testing::Each(Not(HasSubstr("--watch-namespaces"))));
  const std::string some = "--set 'watchNamespaces={a,b}'";
  EXPECT_THAT(Arguments(some), Contains("--watch-namespaces=a,b"));
  const std::vector<YAML::Node> objects = Objects(some + " --set 'rbac.jobNamespaces={c}'");
  const auto rights = RightsByRole(objects);
  EXPECT_THAT(rights.at("fusion-fusionllm-watch"), Not(Contains("list fusionjobs")));
  EXPECT_THAT(rights.at("fusion-fusionllm-watch"), IsSupersetOf({"list fusionclusters", "watch fusionclusters", "list pods"}));
  EXPECT_THAT(rights.at("fusion-fusionllm-work"), IsSupersetOf({"list fusionjobs", "watch fusionjobs"}));
  std::vector<std::string> bound;
  for (const YAML::Node& binding : OfKind(objects, "RoleBinding")) {
    if (NameOf(binding) == "fusion-fusionllm-work") bound.push_back(binding["metadata"]["namespace"].as<std::string>());
  }
  EXPECT_THAT(bound, UnorderedElementsAre("a", "b"));
  EXPECT_THAT(Texts(PodOf(OfKind(objects, "Job").at(0))["containers"][0]["args"]), Contains("--watch-namespaces=a,b"));
}

TEST_F(ChartTest, MonitorsSayWhatPrometheusMakesOfTheirTargets) {
  const std::string known = " --api-versions monitoring.coreos.com/v1 ";
  for (const char* monitor : {"serviceMonitor", "podMonitor"}) {
    const std::string value = absl::StrCat("metrics.", monitor);
    const std::vector<YAML::Node> objects = Objects(absl::StrCat(
        "--set ", value, ".enabled=true,", value, ".honorLabels=true,", value, ".scrapeTimeout=9s,", value, ".namespace=watch ",
        "--set-json '", value, ".relabelings=[{\"targetLabel\":\"site\",\"replacement\":\"x\"}]' --set-json '", value,
        ".metricRelabelings=[{\"action\":\"labeldrop\",\"regex\":\"pod\"}]'", known));
    const bool service = monitor == std::string("serviceMonitor");
    const YAML::Node found = OfKind(objects, service ? "ServiceMonitor" : "PodMonitor").at(0);
    EXPECT_EQ(found["metadata"]["namespace"].as<std::string>(), "watch");
    if (service) {
      EXPECT_EQ(found["spec"]["namespaceSelector"]["matchNames"][0].as<std::string>(), "system");
    }
    const YAML::Node endpoints = found["spec"][service ? "endpoints" : "podMetricsEndpoints"];
    EXPECT_EQ(endpoints.size(), service ? 1 : 2);
    for (const YAML::Node& endpoint : endpoints) {
      EXPECT_TRUE(endpoint["honorLabels"].as<bool>());
      EXPECT_EQ(endpoint["scrapeTimeout"].as<std::string>(), "9s");
      EXPECT_EQ(endpoint["relabelings"][0]["targetLabel"].as<std::string>(), "site");
      EXPECT_EQ(endpoint["metricRelabelings"][0]["action"].as<std::string>(), "labeldrop");
    }
  }
  const std::vector<YAML::Node> jobs = Objects("--set metrics.podMonitor.enabled=true --set 'watchNamespaces={a}'" + known);
  EXPECT_THAT(Texts(OfKind(jobs, "PodMonitor").at(0)["spec"]["namespaceSelector"]["matchNames"]), ::testing::ElementsAre("a"));
}

TEST_F(ChartTest, WithoutMetricsThereIsNoServiceButTheKubeletStillAsks) {
  const std::string all =
      "--api-versions monitoring.coreos.com/v1 --set metrics.serviceMonitor.enabled=true,metrics.podMonitor.enabled=true,"
      "metrics.prometheusRule.enabled=true";
  EXPECT_THAT(Kinds(Objects(all)), IsSupersetOf({"Service", "ServiceMonitor", "PodMonitor", "PrometheusRule"}));
  EXPECT_THAT(Kinds(Objects(all + ",metrics.enabled=false,role=member")), Not(Contains(::testing::AnyOf("PodMonitor", "PrometheusRule"))));
  const std::vector<YAML::Node> objects = Objects(all + ",metrics.enabled=false");
  EXPECT_THAT(Kinds(objects), Not(Contains(::testing::AnyOf("Service", "ServiceMonitor", "PodMonitor", "PrometheusRule"))));
  EXPECT_TRUE(PodOf(OfKind(objects, "Deployment").at(0))["containers"][0]["livenessProbe"].IsDefined());
}

TEST_F(ChartTest, TheOperatorListensWhereItsPodHasAddresses) {
  EXPECT_THAT(Arguments(""), Contains(::testing::StartsWith("--metrics-address=0.0.0.0:")));
  EXPECT_THAT(Arguments("--set metrics.ipv6=true"), Contains(::testing::StartsWith("--metrics-address=[::]:")));
}

TEST_F(ChartTest, TheTestAsksTheOperatorAndTriesAJob) {
  const std::vector<YAML::Node> objects = Objects("");
  const std::string name = "fusion-fusionllm-test";
  const YAML::Node pod = Named(objects, "Pod", name);
  EXPECT_THAT(Texts(pod["spec"]["containers"][0]["args"]),
              UnorderedElementsAre("--check-ready=fusion-fusionllm-metrics:8080", "--dry-run-job=system"));
  EXPECT_TRUE(pod["spec"]["automountServiceAccountToken"].as<bool>());
  EXPECT_EQ(pod["spec"]["serviceAccountName"].as<std::string>(), name);
  EXPECT_THAT(Rights(Named(objects, "Role", name)), UnorderedElementsAre("create fusionjobs"));
  for (const char* kind : {"ServiceAccount", "Role", "RoleBinding", "Pod"}) {
    const YAML::Node notes = Named(objects, kind, name)["metadata"]["annotations"];
    EXPECT_EQ(notes["helm.sh/hook"].as<std::string>(), "test") << kind << ": it would stay with the release";
    // The Pod stays until the next test: its log is asked for when it has ended.
    const std::string goes = absl::StrCat("before-hook-creation", absl::string_view(kind) == "Pod" ? "" : ",hook-succeeded");
    EXPECT_EQ(notes["helm.sh/hook-delete-policy"].as<std::string>(), goes) << kind;
  }
}

// In a namespace with a quota, what asks for nothing is refused.
TEST_F(ChartTest, WhateverRunsSaysWhatItNeeds) {
  int containers = 0;
  for (const YAML::Node& object : Objects("--set scheduler.enabled=true")) {
    const std::string kind = object["kind"].as<std::string>();
    if (kind != "Pod" && kind != "Deployment" && kind != "Job") continue;
    for (const YAML::Node& container : (kind == "Pod" ? object["spec"] : PodOf(object))["containers"]) {
      ++containers;
      for (const char* what : {"cpu", "memory"}) {
        EXPECT_TRUE(container["resources"]["requests"][what].IsDefined()) << kind << " " << container["name"] << " " << what;
      }
      EXPECT_TRUE(container["resources"]["limits"]["memory"].IsDefined()) << kind << " " << container["name"];
    }
  }
  EXPECT_EQ(containers, 4) << "operator and scheduler, helm test, the hook of helm uninstall";
}

TEST_F(ChartTest, TheTestDoesWithWhatThereIs) {
  const auto arguments = [](const std::string& options) {
    return Texts(OfKind(Objects(options), "Pod").at(0)["spec"]["containers"][0]["args"]);
  };
  EXPECT_THAT(arguments("--set metrics.enabled=false"), UnorderedElementsAre("--dry-run-job=system"));
  EXPECT_THAT(arguments("--set rbac.create=false"), UnorderedElementsAre("--check-ready=fusion-fusionllm-metrics:8080"));
  EXPECT_THAT(Kinds(Objects("--set rbac.create=false,metrics.enabled=false")), Not(Contains("Pod")));
}

TEST_F(ChartTest, UsersSeeClustersAndAdminsRegisterThem) {
  const std::vector<YAML::Node> objects = Objects("");
  const auto role = [&](const std::string& which) { return Named(objects, "ClusterRole", "fusion-fusionllm-" + which); };
  EXPECT_THAT(Rights(role("view")), IsSupersetOf({"get fusionclusters", "list fusionclusters", "watch fusionclusters", "get fusionjobs"}));
  EXPECT_THAT(Rights(role("edit")), Not(::testing::Contains(HasSubstr("fusionclusters"))));
  EXPECT_THAT(Rights(role("admin")), IsSupersetOf({"create fusionclusters", "update fusionclusters", "delete fusionclusters"}));
  for (const char* which : {"view", "edit", "admin"}) {
    const std::string label = absl::StrCat("rbac.authorization.k8s.io/aggregate-to-", which);
    EXPECT_EQ(role(which)["metadata"]["labels"][label].as<std::string>(), "true");
    for (const std::string& right : Rights(role(which))) {
      EXPECT_THAT(right, ::testing::AnyOf(HasSubstr("/scale"), ::testing::StartsWith("get"), ::testing::StartsWith("list"),
                                          ::testing::StartsWith("watch"), Not(HasSubstr("/"))))
          << "a status is the operator's to write";
    }
  }
  EXPECT_THAT(RightsByRole(Objects("--set rbac.aggregateUserRoles=false")), Not(Contains(::testing::Key("fusion-fusionllm-admin"))));
}

// What the expressions do only an API server can tell; here, that they speak of what the operator writes.
TEST_F(ChartTest, PodsOfAnOldLeaderCanBeRefused) {
  for (const YAML::Node& policy : OfKind(Objects(""), "ValidatingAdmissionPolicy")) EXPECT_NE(NameOf(policy), "fusion-fusionllm-fence");
  for (const char* role : {"hub", "member"}) {
    const std::vector<YAML::Node> objects = Objects(absl::StrCat("--set admission.fence=true,operator.origin=lab,role=", role));
    const YAML::Node policy = Named(objects, "ValidatingAdmissionPolicy", "fusion-fusionllm-fence")["spec"];
    EXPECT_EQ(policy["matchConstraints"]["objectSelector"]["matchLabels"]["fusionllm.io/origin"].as<std::string>(), "lab")
        << "Pods of others are none of its business";
    EXPECT_EQ(policy["failurePolicy"].as<std::string>(), "Fail");
    const YAML::Node binding = Named(objects, "ValidatingAdmissionPolicyBinding", "fusion-fusionllm-fence")["spec"];
    EXPECT_EQ(binding["policyName"].as<std::string>(), "fusion-fusionllm-fence");
    EXPECT_EQ(binding["paramRef"]["selector"]["matchLabels"]["fusionllm.io/role"].as<std::string>(), "anchor");
  }
}

TEST_F(ChartTest, NamespacesCanLimitTheirJobs) {
  const std::vector<YAML::Node> objects = Objects("--set admission.executorLimits=true");
  const YAML::Node rule =
      Named(objects, "ValidatingAdmissionPolicy", "fusion-fusionllm-limits")["spec"]["matchConstraints"]["resourceRules"][0];
  EXPECT_THAT(Texts(rule["apiGroups"]), ::testing::ElementsAre("fusionllm.io")) << "what is refused by mistake is ours alone";
  EXPECT_THAT(Texts(rule["resources"]), UnorderedElementsAre("fusionjobs", "fusionjobs/scale"));
  // A Scale tells of no spares: those of the job itself are counted.
  const YAML::Node scale = Named(objects, "ValidatingAdmissionPolicy", "fusion-fusionllm-spares")["spec"];
  EXPECT_THAT(Texts(scale["matchConstraints"]["resourceRules"][0]["resources"]), ::testing::ElementsAre("fusionjobs/scale"));
  EXPECT_EQ(scale["paramKind"]["kind"].as<std::string>(), "FusionJob");
  EXPECT_THAT(scale["validations"][0]["expression"].as<std::string>(),
              AllOf(HasSubstr("params.metadata.name != request.name"), HasSubstr("+ variables.spares <= variables.limit")));
  const YAML::Node binding = Named(objects, "ValidatingAdmissionPolicyBinding", "fusion-fusionllm-spares")["spec"];
  EXPECT_EQ(binding["paramRef"]["parameterNotFoundAction"].as<std::string>(), "Allow");
  EXPECT_FALSE(binding["paramRef"]["namespace"]) << "that of the job that is scaled";
  EXPECT_THAT(Kinds(Objects("--set admission.executorLimits=true,admission.pods.enabled=false,role=member")),
              Not(Contains("ValidatingAdmissionPolicy")));
}

// As `fusionctl cluster add` makes them, of the same source.
TEST_F(ChartTest, PodsOfJobsAreKeptFromTheirNodes) {
  for (const char* role : {"hub", "member"}) {
    const std::vector<YAML::Node> objects =
        Objects(absl::StrCat("--set serviceAccount.name=north,role=", role, " --set 'admission.pods.serviceAccounts={a,b-2}'"));
    const kubeapi::PolicySubject subject{"system", "north", {"a", "b-2"}, /*renews_tokens=*/true};
    for (const auto& [name, spec] :
         {std::pair("pods", kubeapi::PodPolicySpec(subject)), std::pair("places", kubeapi::PlacePolicySpec(subject)),
          std::pair("changes", kubeapi::ChangePolicySpec(subject))}) {
      const std::string full = absl::StrCat("fusion-fusionllm-", name);
      const YAML::Node policy = Named(objects, "ValidatingAdmissionPolicy", full)["spec"];
      EXPECT_EQ(policy["failurePolicy"].as<std::string>(), "Fail");
      EXPECT_EQ(policy["matchConditions"][0]["expression"].as<std::string>(), spec["matchConditions"][0]["expression"].get<std::string>());
      ASSERT_EQ(policy["validations"].size(), spec["validations"].size());
      for (size_t i = 0; i < spec["validations"].size(); ++i) {
        for (const char* field : {"expression", "message", "reason"}) {
          EXPECT_EQ(policy["validations"][i][field].as<std::string>(), spec["validations"][i][field].get<std::string>());
        }
      }
      const YAML::Node binding = Named(objects, "ValidatingAdmissionPolicyBinding", full)["spec"];
      EXPECT_EQ(binding["policyName"].as<std::string>(), full);
      EXPECT_EQ(binding["validationActions"][0].as<std::string>(), "Deny");
    }
  }
  const YAML::Node none = Named(Objects(""), "ValidatingAdmissionPolicy", "fusion-fusionllm-pods")["spec"];
  EXPECT_THAT(none["validations"][5]["expression"].as<std::string>(), HasSubstr("in ['', 'default']"));
  EXPECT_THAT(Kinds(Objects("--set admission.pods.enabled=false")), Not(Contains("ValidatingAdmissionPolicy")));
}

// As with `fusionctl cluster add`: bound to a Secret, and renewed by the hub.
TEST_F(ChartTest, AMembersTokensEndWithASecretAndTheAccountRenewsItsOwn) {
  const std::vector<YAML::Node> objects = Objects("--set role=member,serviceAccount.name=north");
  EXPECT_EQ(Named(objects, "Secret", "fusion-fusionllm-tokens")["type"].as<std::string>(), "Opaque") << "no token that never ends";
  const YAML::Node rules = Named(objects, "Role", "fusion-fusionllm-renew")["rules"];
  ASSERT_EQ(rules.size(), 1u);
  EXPECT_THAT(Texts(rules[0]["resources"]), UnorderedElementsAre("serviceaccounts/token"));
  EXPECT_THAT(Texts(rules[0]["verbs"]), UnorderedElementsAre("create"));
  EXPECT_THAT(Texts(rules[0]["resourceNames"]), UnorderedElementsAre("north"));
  const YAML::Node policy = Named(objects, "ValidatingAdmissionPolicy", "fusion-fusionllm-tokens")["spec"];
  EXPECT_THAT(policy["validations"][0]["expression"].as<std::string>(), HasSubstr("boundObjectRef.name == 'fusion-fusionllm-tokens'"));
  EXPECT_EQ(policy["validations"][1]["expression"].as<std::string>(), "object.spec.expirationSeconds <= 2592000");
  EXPECT_THAT(policy["matchConditions"][0]["expression"].as<std::string>(), HasSubstr(":north'"));
  EXPECT_THAT(Kinds(Objects("--set role=member,member.token=false")), Not(::testing::AnyOf(Contains("Secret"), Contains("Role"))));
  EXPECT_THAT(Kinds(Objects("")), Not(Contains("Secret"))) << "a hub's account asks for no token";
}

// Older servers drop the definitions' selectableFields, or refuse the definitions for them.
TEST_F(ChartTest, AKubernetesThatDoesNotKnowOurDefinitionsIsRefused) {
  for (const char* chart : {"fusionllm", "fusion-crds"}) {
    const auto rendered = [&](const char* version) {
      return Helm(absl::StrCat("template fusion '", SourceFolder(), "/helm/", chart, "' --kube-version ", version,
                               chart == std::string("fusionllm") ? " --set rbac.allNamespaces=true" : ""));
    };
    const Outcome first = rendered("1.31.0");
    EXPECT_EQ(first.code, 0) << first.text;
    EXPECT_THAT(first.text, HasSubstr("selectableFields")) << "without them, older ones will do";
    const Outcome old = rendered("1.30.14");
    EXPECT_NE(old.code, 0) << chart;
    EXPECT_THAT(old.text, HasSubstr("chart requires kubeVersion: >=1.31.0-0")) << chart;
  }
}

}  // namespace
}  // namespace fusionllm
