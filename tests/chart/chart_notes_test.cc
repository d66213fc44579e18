// What helm tells whoever installs the chart: what values as they are lead to, where that is not what one would think.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/chart/helm_chart.h"

namespace fusionllm {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kKnown[] = " --api-versions monitoring.coreos.com/v1 ";

TEST_F(ChartTest, RightsInAllNamespacesAreNoted) {
  const auto warning = HasSubstr("may read and write Secrets and make Pods in all namespaces");
  for (const char* role : {"--set role=hub", "--set role=member"}) {
    EXPECT_THAT(Notes(role), AllOf(warning, HasSubstr("rbac.jobNamespaces={NAMESPACE,...}"))) << role;
    EXPECT_THAT(Notes(absl::StrCat(role, " --set 'rbac.jobNamespaces={a}'")), Not(warning)) << role;
    EXPECT_THAT(Notes(absl::StrCat(role, " --set 'watchNamespaces={a}'")), Not(warning)) << role;
    EXPECT_THAT(Notes(absl::StrCat(role, ",rbac.create=false")), Not(warning)) << role << ": somebody else gives the rights";
  }
}

TEST_F(ChartTest, MemberNotesSayHowToMakeAndRenewItsToken) {
  const std::string notes = Notes("--set role=member,serviceAccount.name=north");
  EXPECT_THAT(notes, AllOf(HasSubstr("create token north --duration 720h"), HasSubstr("--bound-object-name fusion-fusionllm-tokens"),
                           HasSubstr("config view --raw --output json"), HasSubstr("fusionllm.io/renew-token=true")));
  EXPECT_THAT(Notes("--set role=member,member.token=false"), Not(HasSubstr("create token")));
}

TEST_F(ChartTest, WithoutASchedulerTheNotesSayHowJobsAreSpread) {
  const auto note = HasSubstr("No scheduler is asked where jobs run fastest");
  EXPECT_THAT(Notes(""), AllOf(note, HasSubstr("--set scheduler.enabled=true")));
  EXPECT_THAT(Notes("--set scheduler.enabled=true"), Not(note));
  EXPECT_THAT(Notes("--set operator.config.scheduler=sched:80"), Not(note));
  EXPECT_THAT(Notes("--set role=member"), Not(note)) << "it is the hub's to ask";
}

TEST_F(ChartTest, NotesWarnOfRemovedFeatureGates) {
  const auto warning = HasSubstr("operator.featureGates does nothing any more");
  EXPECT_THAT(Notes("--set operator.featureGates.MeasuredLinks=true"), warning);
  EXPECT_THAT(Notes(""), Not(warning));
}

TEST_F(ChartTest, ValuesThatTheRoleDoesNotUseAreNamed) {
  const auto none = Not(HasSubstr("Without effect"));
  for (const auto& [value, name] : std::vector<std::pair<const char*, const char*>>{
           {"scheduler.enabled=true", "scheduler.enabled"},
           {"admission.executorLimits=true", "admission.executorLimits"},
           {"networkPolicy.enabled=true", "networkPolicy.enabled"},
           {"metrics.serviceMonitor.enabled=true", "metrics.serviceMonitor.enabled"},
           {"operator.clusterProfiles.enabled=true,operator.clusterProfiles.configMap=x", "operator.clusterProfiles.enabled"},
           {"operator.replicas=2", "operator.replicas"},
           {"operator.config.memberCacheMib=96", "operator.config"},
           {"operator.hubAddress=192.0.2.1", "operator.hubAddress"},
           {"operator.extraArgs={--tombstone-days=3}", "operator.extraArgs"},
           {"operator.extraEnv[0].name=X", "operator.extraEnv"}}) {
    const std::string set = absl::StrCat(" --set '", value, "'");
    EXPECT_THAT(Notes("--set role=member" + set),
                HasSubstr(absl::StrCat("Without effect, for they are of the other role than member: ", name, ".")));
    EXPECT_THAT(Notes(set), none) << value;
  }
  EXPECT_THAT(Notes("--set scheduler.enabled=true,role=member,operator.replicas=3"), HasSubstr(": operator.replicas, scheduler.enabled."));
  EXPECT_THAT(Notes("--set member.token=false"), HasSubstr("Without effect, for they are of the other role than hub: member.token."));
  EXPECT_THAT(Notes("--set member.token=false,role=member"), none);
  EXPECT_THAT(Notes(""), none);
  EXPECT_THAT(Notes("--set role=member"), none);
  // A hub's and a member's own.
  EXPECT_THAT(Notes("-f '" + ChartFolder() + "/ci/member-values.yaml'"), none);
  EXPECT_THAT(Notes("-f '" + ChartFolder() + "/ci/everything-values.yaml'"), none);
}

TEST_F(ChartTest, NotesWarnAboutRulesWithoutMonitors) {
  const std::string rules = absl::StrCat(kKnown, "--set metrics.prometheusRule.enabled=true");
  const auto down = HasSubstr("FusionOperatorDown fires for ever"), jobs = HasSubstr("the alerts about running jobs look at nothing");
  EXPECT_THAT(Notes(rules), AllOf(down, jobs));
  EXPECT_THAT(Notes(rules + ",metrics.serviceMonitor.enabled=true"), AllOf(Not(down), jobs));
  EXPECT_THAT(Notes(rules + ",metrics.podMonitor.enabled=true"), AllOf(down, Not(jobs)));
  EXPECT_THAT(Notes(rules + " --set 'metrics.prometheusRule.disabled={FusionOperatorDown}'"), AllOf(Not(down), jobs));
  EXPECT_THAT(Notes(rules + ",role=member"), AllOf(Not(down), jobs)) << "its rules are those of jobs alone";
  EXPECT_THAT(Notes(kKnown), AllOf(Not(down), Not(jobs)));
}

TEST_F(ChartTest, MonitorsThatAreNotMadeAreExplained) {
  for (const char* what : {"serviceMonitor", "podMonitor", "prometheusRule"}) {
    const std::string asked = absl::StrCat("--set metrics.", what, ".enabled=true");
    const std::string nothing = "No ServiceMonitor, PodMonitor or PrometheusRule was made: ";
    EXPECT_THAT(Notes(asked), HasSubstr(nothing + "this cluster does not have")) << what;
    EXPECT_THAT(Notes(asked + ",metrics.enabled=false" + kKnown), HasSubstr(nothing + "metrics.enabled is false")) << what;
    EXPECT_THAT(Notes(asked + kKnown), Not(HasSubstr(nothing))) << what;
  }
}

}  // namespace
}  // namespace fusionllm
