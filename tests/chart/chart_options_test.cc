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

}  // namespace
}  // namespace fusionllm
