// What the chart's options add to it, and what each of them says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include "absl/strings/str_cat.h"
#include "tests/chart/helm_chart.h"

namespace fusionllm {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
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
  EXPECT_THAT(Texts(pod["containers"][0]["args"]), IsSupersetOf({"--stop-jobs=suspend", "--stop-patience=240"}));
}

TEST_F(ChartTest, JobsAreDeletedWhereTheirDefinitionGoesToo) {
  const auto arguments = [](const std::string& options) {
    return Texts(PodOf(OfKind(Objects(options), "Job").at(0))["containers"][0]["args"]);
  };
  EXPECT_THAT(arguments("--set crds.keep=false"), Contains("--stop-jobs=delete"));
  EXPECT_THAT(arguments("--set uninstall.how=delete,uninstall.timeoutSeconds=60"),
              IsSupersetOf({"--stop-jobs=delete", "--stop-patience=60"}));
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
    EXPECT_THAT(Texts(spec["policyTypes"]), testing::ElementsAre("Ingress")) << "what they dial is a job's own affair";
    const YAML::Node from = spec["ingress"][0]["from"];
    EXPECT_FALSE(from[0]["namespaceSelector"].IsDefined()) << "jobs of other namespaces are no peers";
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

}  // namespace
}  // namespace fusionllm
