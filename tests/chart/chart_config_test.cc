// The file of settings that the chart gives the operator, against what the operator reads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <functional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/job/describer.h"
#include "operator/manager/config_fields.h"
#include "operator/manager/config_file.h"
#include "tests/chart/helm_chart.h"

namespace fusionllm {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAreArray;

std::string FileIn(const std::string& options) {
  return Named(Objects(options), "ConfigMap", "fusion-fusionllm-config")["data"]["operator.yaml"].as<std::string>();
}

// As the operator reads it, with no flags.
op::manager::Flags Read(const std::string& options) {
  const char* const argv[] = {op::manager::kProgram};
  const absl::StatusOr<op::manager::Flags> flags = op::manager::MergeFlags(FileIn(options), "operator.yaml", {1, argv});
  EXPECT_TRUE(flags.ok()) << flags.status();
  return flags.value_or(op::manager::Flags());
}

std::vector<std::string> Keys(const YAML::Node& map) {
  std::vector<std::string> keys;
  for (const auto& entry : map) keys.push_back(entry.first.as<std::string>());
  return keys;
}

YAML::Node OperatorSchema() { return YAML::LoadFile(ChartFolder() + "/values.schema.json")["properties"]["operator"]["properties"]; }

std::string DeploymentOf(const std::string& options) { return YAML::Dump(OfKind(Objects(options), "Deployment").at(0)); }

TEST_F(ChartTest, TheOperatorUnderstandsItsFile) {
  const op::manager::Flags usual = Read(""), defaults;
  EXPECT_EQ(usual.common.log_level, "info");
  EXPECT_EQ(usual.hub_qps, defaults.hub_qps);
  EXPECT_EQ(usual.hub_burst, defaults.hub_burst);
  const op::manager::Flags flags = Read(
      "--set operator.logLevel=debug --set-json operator.clientConnection.qps=2.5 --set operator.clientConnection.burst=5 "
      "--set operator.config.memberCacheMib=96,operator.config.scheduler=sched:80 --set 'operator.config.execProgram={aws,gke}'");
  EXPECT_EQ(flags.common.log_level, "debug");
  EXPECT_EQ(flags.hub_qps, 2.5);
  EXPECT_EQ(flags.hub_burst, 5);
  EXPECT_EQ(flags.member_cache_mib, 96);
  EXPECT_EQ(flags.scheduler, "sched:80");
  EXPECT_THAT(flags.exec_programs, ::testing::ElementsAre("aws", "gke"));
}

TEST_F(ChartTest, TheFileIsMountedAsAFolderSoThatChangesArrive) {
  const YAML::Node pod = OfKind(Objects(""), "Deployment").at(0)["spec"]["template"]["spec"];
  EXPECT_THAT(Arguments(""), Contains("--config=/etc/fusionllm/config/operator.yaml"));
  const YAML::Node mount = pod["containers"][0]["volumeMounts"][0];
  EXPECT_EQ(mount["mountPath"].as<std::string>(), "/etc/fusionllm/config");
  EXPECT_FALSE(mount["subPath"].IsDefined()) << "the kubelet does not bring such a file up to date";
  EXPECT_EQ(pod["volumes"][0]["name"].as<std::string>(), mount["name"].as<std::string>());
  EXPECT_EQ(pod["volumes"][0]["configMap"]["name"].as<std::string>(), "fusion-fusionllm-config");
  EXPECT_THAT(Kinds(Objects("--set role=member")), Not(Contains("ConfigMap")));
}

TEST_F(ChartTest, WhatHoldsAtOnceRestartsNothing) {
  for (const std::string& scheduler : {std::string("--set scheduler.enabled=true"), std::string("--set scheduler.enabled=false")}) {
    const std::string changed = scheduler + ",operator.logLevel=debug,operator.clientConnection.qps=3,operator.clientConnection.burst=4";
    EXPECT_EQ(DeploymentOf(scheduler), DeploymentOf(changed));
    EXPECT_NE(FileIn(scheduler), FileIn(changed));
    EXPECT_EQ(DeploymentOf(scheduler), DeploymentOf(scheduler + ",operator.config.memberCacheMib=96")) << "the log says that it waits";
  }
}

TEST_F(ChartTest, RemovedFeatureGatesAreNotPassedOn) {
  const std::string on = "--set operator.featureGates.MeasuredLinks=true";
  EXPECT_THAT(Arguments(on), Each(Not(StartsWith("--feature-gates"))));
  EXPECT_EQ(FileIn(on), FileIn(""));
  const Outcome off = Render(on + ",operator.featureGates.DryRunTrials=false");
  EXPECT_NE(off.code, 0);
  EXPECT_THAT(off.text, HasSubstr("operator.featureGates.DryRunTrials: the gate is gone"));
  const Outcome unknown = Render("--set operator.featureGates.Nothing=true");
  EXPECT_NE(unknown.code, 0);
  EXPECT_THAT(unknown.text, HasSubstr("Nothing"));
}

// Two places for one setting, and the file would lose against the flag without a word.
TEST_F(ChartTest, EachSettingHasOnePlace) {
  const std::string all =
      "--set scheduler.enabled=true,operator.hubAddress=x,operator.clusterProfiles.enabled=true,"
      "operator.clusterProfiles.configMap=mine --set 'watchNamespaces={a}'";
  std::vector<std::string> placed = Keys(OperatorSchema()["config"]["properties"]), settings;
  for (const std::string& key : Keys(YAML::Load(FileIn("")))) placed.push_back(key);
  const std::vector<std::string> arguments = Arguments(all);
  for (const job::FieldSchema& field : job::Describer::Root<op::manager::Flags>().children) {
    settings.push_back(field.name);
    // The chart's own scheduler goes before another, which is refused then.
    if (field.name == "scheduler") continue;
    for (const std::string& argument : arguments) {
      if (argument.substr(0, argument.find('=')) == field.doc) placed.push_back(field.name);
    }
  }
  EXPECT_THAT(placed, UnorderedElementsAreArray(settings));
  const Outcome two = Render("--set scheduler.enabled=true,operator.config.scheduler=sched:80");
  EXPECT_NE(two.code, 0);
  EXPECT_THAT(two.text, HasSubstr("scheduler.enabled gives the operator one already"));
  for (const char* setting : {"workers=3", "logLevel=debug", "nothing=1"}) {
    EXPECT_NE(Render(absl::StrCat("--set operator.config.", setting)).code, 0) << setting;
  }
}

TEST_F(ChartTest, AFlagThatWouldGoBeforeTheFileIsRefused) {
  const std::pair<const char*, const char*> wrong[] = {
      {"--log-level=debug", "set operator.logLevel instead"},
      {"--log-level", "set operator.logLevel instead"},
      {"--kube-api-qps=7", "set operator.clientConnection.qps instead"},
      {"--kube-api-burst=7", "set operator.clientConnection.burst instead"},
      {"--workers=3", "set operator.workers instead"},
      {"--origin=x", "set operator.origin instead"},
      {"--leader-elect", "set operator.replicas instead"},
      {"--namespace=x", "the chart gives it already"},
  };
  for (const auto& [flag, advice] : wrong) {
    const Outcome outcome = Render(absl::StrCat("--set 'operator.extraArgs={", flag, "}'"));
    EXPECT_NE(outcome.code, 0) << flag << " was taken";
    EXPECT_THAT(outcome.text, HasSubstr(absl::StrCat("operator.extraArgs: ", flag, ": ", advice)));
  }
  // What the file says only if told to may be a flag else; and each setting there is refused under the flag's own name.
  const std::string cache = "--set 'operator.extraArgs={--member-cache-mib=8}' ";
  EXPECT_THAT(Arguments(cache), Contains("--member-cache-mib=8"));
  EXPECT_THAT(Render(cache + "--set operator.config.memberCacheMib=9").text, HasSubstr("set operator.config.memberCacheMib instead"));
}

// A release whose values are kept (helm upgrade --reuse-values) has none of those that its chart did not have yet.
TEST_F(ChartTest, AReleaseFromBeforeCanKeepItsValues) {
  const YAML::Node always = YAML::Load(R"({role: , nameOverride: , fullnameOverride: , commonLabels: , image: , imagePullSecrets: , crds: ,
    operator: {replicas: , origin: , clusterName: , hubAddress: , workers: , logLevel: , extraArgs: , extraEnv: , resources: ,
      podAnnotations: , podLabels: , nodeSelector: , tolerations: , affinity: , priorityClassName: , terminationGracePeriodSeconds: ,
      livenessProbe: , readinessProbe: },
    serviceAccount: , rbac: , member: , metrics: {port: , serviceMonitor: , podMonitor: }, networkPolicy: {enabled: , apiServerPorts: }})");
  std::vector<std::string> later;
  for (const auto& group : YAML::LoadFile(ChartFolder() + "/values.yaml")) {
    const std::string name = group.first.as<std::string>();
    if (!always[name].IsDefined()) {
      later.push_back(name);
      continue;
    }
    if (!always[name].IsMap()) continue;
    for (const std::string& key : Keys(group.second)) {
      if (!always[name][key].IsDefined()) later.push_back(absl::StrCat(name, ".", key));
    }
  }
  EXPECT_THAT(later, ::testing::IsSupersetOf({"admission", "operator.clusterProfiles", "metrics.enabled"}));
  const std::string without = absl::StrCat(" --set ", absl::StrJoin(later, "=null,"), "=null");
  const std::string known =
      "--api-versions monitoring.coreos.com/v1 --set metrics.serviceMonitor.enabled=true,rbac.allNamespaces=true,role=";
  for (const std::string& options : {known + "hub,operator.replicas=2", known + "member"}) {
    const Outcome outcome = Render(options + without);
    EXPECT_EQ(outcome.code, 0) << outcome.text;
    EXPECT_EQ(outcome.text, Render(options).text);
  }
  const std::string some =
      "--set scheduler.enabled=true,admission.fence=true,grafana.dashboards.enabled=true,operator.clientConnection.qps=7,"
      "networkPolicy.jobs.enabled=true --set 'networkPolicy.jobs.namespaces={a}'";
  const std::string unknown =
      " --set scheduler.port=null,scheduler.logLevel=null,admission.executorLimits=null,grafana.dashboards.label=null,"
      "grafana.dashboards.labelValue=null,operator.clientConnection.burst=null,networkPolicy.jobs.fromCIDRs=null";
  EXPECT_EQ(Render(some + unknown).text, Render(some).text);
}

// Of the defaults that stand in two places.
TEST(ChartConfigTest, ValuesThatAreFilledInAreThoseOfTheFile) {
  const std::string helpers = base::ReadWholeFile(ChartFolder() + "/templates/_helpers.tpl");
  const std::string begin = "{{- define \"fusionllm.laterValues\" -}}\n";
  ASSERT_NE(helpers.find(begin), std::string::npos);
  const std::string table = helpers.substr(helpers.find(begin) + begin.size());
  const std::function<void(const YAML::Node&, const YAML::Node&, const std::string&)> compare =
      [&](const YAML::Node& filled, const YAML::Node& value, const std::string& path) {
        if (!filled.IsMap() || filled.size() == 0) {
          EXPECT_EQ(YAML::Dump(filled), YAML::Dump(value)) << path;
          return;
        }
        for (const std::string& key : Keys(filled)) {
          ASSERT_TRUE(value[key].IsDefined()) << path << "." << key;
          compare(filled[key], value[key], absl::StrCat(path, ".", key));
        }
      };
  compare(YAML::Load(table.substr(0, table.find("{{- end"))), YAML::LoadFile(ChartFolder() + "/values.yaml"), "");
}

}  // namespace
}  // namespace fusionllm
