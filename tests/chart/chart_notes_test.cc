// What helm tells whoever installs the chart: what values as they are lead to, where that is not what one would think.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/chart/helm_chart.h"

namespace fusionllm {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kKnown[] = " --api-versions monitoring.coreos.com/v1 ";

TEST_F(ChartTest, WhoeverGivesRightsInAllNamespacesIsTold) {
  const auto warning = HasSubstr("may read and write Secrets and make Pods in all namespaces");
  for (const char* role : {"--set role=hub", "--set role=member"}) {
    EXPECT_THAT(Notes(role), AllOf(warning, HasSubstr("rbac.jobNamespaces="))) << role;
    EXPECT_THAT(Notes(absl::StrCat(role, " --set 'rbac.jobNamespaces={a}'")), Not(warning)) << role;
    EXPECT_THAT(Notes(absl::StrCat(role, " --set 'watchNamespaces={a}'")), Not(warning)) << role;
    EXPECT_THAT(Notes(absl::StrCat(role, ",rbac.create=false")), Not(warning)) << role << ": somebody else gives the rights";
  }
}

TEST_F(ChartTest, WhoeverHasNoSchedulerIsToldHowJobsAreSpread) {
  const auto note = HasSubstr("No scheduler is asked where jobs run fastest");
  EXPECT_THAT(Notes(""), AllOf(note, HasSubstr("--set scheduler.enabled=true")));
  EXPECT_THAT(Notes("--set scheduler.enabled=true"), Not(note));
  EXPECT_THAT(Notes("--set operator.config.scheduler=sched:80"), Not(note));
  EXPECT_THAT(Notes("--set role=member"), Not(note)) << "it is the hub's to ask";
}

TEST_F(ChartTest, WhoeverTakesRulesWithoutMonitorsIsToldWhatTheyLackThen) {
  const std::string rules = absl::StrCat(kKnown, "--set metrics.prometheusRule.enabled=true");
  const auto down = HasSubstr("FusionOperatorDown fires for ever"), jobs = HasSubstr("the alerts about running jobs look at nothing");
  EXPECT_THAT(Notes(rules), AllOf(down, jobs));
  EXPECT_THAT(Notes(rules + ",metrics.serviceMonitor.enabled=true"), AllOf(Not(down), jobs));
  EXPECT_THAT(Notes(rules + ",metrics.podMonitor.enabled=true"), AllOf(down, Not(jobs)));
  EXPECT_THAT(Notes(rules + " --set 'metrics.prometheusRule.disabled={FusionOperatorDown}'"), AllOf(Not(down), jobs));
  EXPECT_THAT(Notes(rules + ",role=member"), AllOf(Not(down), jobs)) << "its rules are those of jobs alone";
  EXPECT_THAT(Notes(kKnown), AllOf(Not(down), Not(jobs)));
}

TEST_F(ChartTest, WhoeverAsksForMonitorsThatAreNotMadeIsToldWhy) {
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
