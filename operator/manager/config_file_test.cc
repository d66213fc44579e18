// What the file of --config may say, and what becomes of it beside the command line.
#include "operator/manager/config_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <cctype>
#include <cmath>
#include <set>

#include "absl/strings/str_cat.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/job/describer.h"
#include "lib/job/printer.h"
#include "operator/manager/config_fields.h"

namespace fusionllm::op::manager {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAreArray;

constexpr char kHead[] = "apiVersion: config.fusionllm.io/v1alpha1\nkind: OperatorConfig\n";

absl::StatusOr<Flags> Merge(const std::string& yaml, std::vector<const char*> arguments = {}) {
  arguments.insert(arguments.begin(), kProgram);
  return MergeFlags(absl::StrCat(kHead, yaml), "operator.yaml", {static_cast<int>(arguments.size()), arguments.data()});
}

std::string FileRefusal(const std::string& yaml) {
  const absl::StatusOr<Flags> flags = Merge(yaml);
  EXPECT_FALSE(flags.ok()) << yaml;
  return std::string(flags.status().message());
}

// --kube-api-qps: kubeApiQps.
std::string SettingOf(const std::string& flag) {
  std::string name;
  for (size_t i = 0; i < flag.size(); ++i) {
    if (flag[i] == '-') continue;
    name.push_back(i > 0 && flag[i - 1] == '-' ? static_cast<char>(std::toupper(flag[i])) : flag[i]);
  }
  return name;
}

TEST(ConfigFileTest, ItHasEveryFlagByItsNameButThoseThatAreCommands) {
  Flags flags;
  CLI::App app;
  AddFlags(app, flags);
  std::vector<std::string> of_flags,
      of_file = {"config", "checkReady", "stopJobs", "stopTimeoutSeconds", "dryRunJob", "featureGates", "help", "version"};
  for (const CLI::Option* option : app.get_options()) of_flags.push_back(SettingOf(option->get_lnames().at(0)));
  for (const job::FieldSchema& field : job::Describer::Root<Flags>().children) {
    if (!field.constant.empty()) continue;
    of_file.push_back(field.name);
    EXPECT_EQ(SettingOf(field.doc.substr(2)), field.name);
  }
  EXPECT_THAT(of_file, UnorderedElementsAreArray(of_flags));
}

TEST(ConfigFileTest, BoundsAreThoseOfTheFlags) {
  int compared = 0;
  for (const job::FieldSchema& field : job::Describer::Root<Flags>().children) {
    if (!std::isfinite(field.rule.max)) continue;
    ++compared;
    for (const double value : {field.rule.min - 1, field.rule.min, field.rule.max, field.rule.max + 1}) {
      Flags flags;
      CLI::App app;
      AddFlags(app, flags);
      const std::string argument = absl::StrCat(field.doc, "=", value);
      const char* const argv[] = {kProgram, argument.c_str()};
      bool taken = true;
      try {
        app.parse(2, argv);
      } catch (const CLI::ParseError&) {
        taken = false;
      }
      EXPECT_EQ(taken, value >= field.rule.min && value <= field.rule.max) << argument;
      EXPECT_EQ(taken, Merge(absl::StrCat(field.name, ": ", value)).ok()) << argument;
    }
  }
  EXPECT_EQ(compared, 4);
}

TEST(ConfigFileTest, TheCommandLineGoesBeforeTheFileAndThatBeforeDefaults) {
  const auto flags =
      Merge("workers: 3\nkubeApiQps: 2.5\norigin: lab\nleaderElect: true\nwatchNamespaces: [a, b]\nexecProgram: [aws]\nlogLevel: debug\n",
            {"--origin=here", "--watch-namespaces=c"});
  ASSERT_TRUE(flags.ok()) << flags.status();
  EXPECT_EQ(flags->workers, 3);
  EXPECT_EQ(flags->hub_qps, 2.5);
  EXPECT_EQ(flags->hub_burst, 1000);
  EXPECT_EQ(flags->origin, "here");
  EXPECT_TRUE(flags->elect);
  EXPECT_THAT(flags->namespaces, ElementsAre("c"));
  EXPECT_THAT(flags->exec_programs, ElementsAre("aws"));
  EXPECT_EQ(flags->common.log_level, "debug");
}

TEST(ConfigFileTest, WhatIsWrongIsNamedByLineAndField) {
  EXPECT_THAT(FileRefusal("worker: 3"), HasSubstr("operator.yaml:3: worker: unknown field; did you mean workers?"));
  EXPECT_EQ(FileRefusal("origin: x\nworkers: many"), "operator.yaml:4: workers: must be a whole number, got \"many\"");
  EXPECT_EQ(FileRefusal("workers: 0"), "operator.yaml:3: workers: must be at least 1, got 0");
  EXPECT_EQ(FileRefusal("kubeApiQps: 1e9"), "operator.yaml:3: kubeApiQps: must be at most 10000, got 1e9");
  EXPECT_EQ(FileRefusal("leaderElect: 1"), "operator.yaml:3: leaderElect: must be true or false, got 1");
  EXPECT_EQ(FileRefusal("logLevel: loud"), "operator.yaml:3: logLevel: must be debug, info, warning or error, got \"loud\"");
  EXPECT_EQ(FileRefusal("logFormat: xml"), "operator.yaml:3: logFormat: must be text or json, got \"xml\"");
  EXPECT_THAT(FileRefusal("imagePullPolicy: never"), HasSubstr("operator.yaml:3: imagePullPolicy: must be Always, IfNotPresent or Never"));
  EXPECT_THAT(FileRefusal("origin: a b/c"), HasSubstr("operator.yaml:3: origin: must be lower-case letters"));
  EXPECT_THAT(FileRefusal("clusterName: Foo!"), HasSubstr("operator.yaml:3: clusterName: must be lower-case letters"));
  EXPECT_THAT(FileRefusal("namespace: ../x"), HasSubstr("operator.yaml:3: namespace: must be lower-case letters"));
  EXPECT_THAT(FileRefusal("hubAddress: hub:7000"), HasSubstr("operator.yaml:3: hubAddress: \"hub:7000\" is no host name and no address"));
  for (const char* field : {"brokerImage", "schedulerImage", "executorImage", "executorCudaImage"}) {
    EXPECT_THAT(FileRefusal(absl::StrCat(field, ": Broker v1")), HasSubstr(absl::StrCat("operator.yaml:3: ", field, ": must be an image")));
  }
  EXPECT_THAT(FileRefusal("watchNamespaces:\n- a\n- B_c"), HasSubstr("operator.yaml:5: watchNamespaces[1]: must be lower-case letters"));
  EXPECT_THAT(FileRefusal("watchNamespaces: ['']"), HasSubstr("operator.yaml:3: watchNamespaces[0]: must not be empty"));
  EXPECT_THAT(FileRefusal("execProgram: ./aws"), HasSubstr("operator.yaml:3: execProgram"));
  EXPECT_THAT(FileRefusal("execProgram: [aws, bin/aws]"), HasSubstr("operator.yaml:3: execProgram[1]: must be an absolute path"));
  EXPECT_THAT(FileRefusal("metricsAddress: localhost"), HasSubstr("operator.yaml:3: metricsAddress: 'localhost' is no address"));
  EXPECT_THAT(FileRefusal("scheduler: nowhere"), HasSubstr("operator.yaml:3: scheduler: "));
  EXPECT_THAT(FileRefusal("workers: 1\nworkers: 2"), HasSubstr("operator.yaml:4: workers: duplicate key"));
  EXPECT_THAT(std::string(MergeFlags("kind: FusionJob", "f", {}).status().message()), HasSubstr("f:1: kind: must be OperatorConfig"));
}

TEST(ConfigFileTest, RemovedGatesMayOnlyBeOn) {
  EXPECT_TRUE(Merge("featureGates: {SchedulerAdvice: true, DryRunTrials: true}")->feature_gates);
  EXPECT_TRUE(Merge("featureGates: {}")->feature_gates);
  EXPECT_TRUE(Merge("", {"--feature-gates=MeasuredLinks=true, DryRunTrials=true"})->feature_gates);
  EXPECT_FALSE(Merge("workers: 3")->feature_gates);
  const std::string gates = FileRefusal("featureGates:\n  Dry: true\n  MeasuredLinks: 2\n  DryRunTrials: no\nworker: 3");
  EXPECT_THAT(gates, HasSubstr("operator.yaml:4: featureGates.Dry: there is no feature gate \"Dry\""));
  EXPECT_THAT(gates, HasSubstr("operator.yaml:5: featureGates.MeasuredLinks: the gate MeasuredLinks must be true or false, got 2"));
  EXPECT_THAT(gates, HasSubstr("operator.yaml:6: featureGates.DryRunTrials: the gate DryRunTrials is gone"));
  EXPECT_THAT(gates, HasSubstr("operator.yaml:7: worker: unknown field"));
  EXPECT_THAT(FileRefusal("featureGates: all"), HasSubstr("operator.yaml:3: featureGates: must be a map of gates"));
}

TEST(ConfigFileTest, NamesAreWhatLabelsAndNamespacesTake) {
  for (const std::string& name : {std::string("a"), std::string("hub-1"), std::string("1"), std::string(63, 'a')}) {
    EXPECT_EQ(CheckName(name), "") << name;
  }
  for (const std::string& name : {std::string(), std::string("-a"), std::string("a-"), std::string("Hub"), std::string("a.b"),
                                  std::string("a_b"), std::string(64, 'a')}) {
    EXPECT_NE(CheckName(name), "") << name;
  }
}

TEST(ConfigFileTest, ASettingIsThatOfItsFlag) {
  const std::set<std::string> few_words = {"imagePullPolicy", "logFormat", "logLevel", "scheduler"};
  for (const job::FieldSchema& field : job::Describer::Root<Flags>().children) {
    if (!field.constant.empty() || few_words.contains(field.name)) continue;
    const std::string value = field.name == "leaderElect" || field.name == "hubOnDemand" ? "true"
                              : field.name == "execEnv"                                  ? "V37"
                              : field.name == "metricsAddress"                           ? "off"
                                                                                         : "37",
                      argument = absl::StrCat(field.doc, "=", value);
    const auto in_file = [&](const std::string& text) {
      return Merge(absl::StrCat(field.name, ": ", field.name == "watchNamespaces" ? absl::StrCat("[", text, "]") : text));
    };
    auto by_file = in_file(value);
    if (!by_file.ok()) by_file = in_file(absl::StrCat("'", value, "'"));  // a text that would be a number
    const auto by_flag = Merge("", {argument.c_str()});
    ASSERT_TRUE(by_file.ok() && by_flag.ok()) << by_file.status() << by_flag.status();
    EXPECT_EQ(job::Printer::Print(*by_file), job::Printer::Print(*by_flag)) << field.name;
    EXPECT_NE(job::Printer::Print(*by_flag), job::Printer::Print(Flags())) << field.name;
  }
}

TEST(ConfigFileTest, FlagsThatCannotBeAreRefusedAtTheStart) {
  for (const char* argument :
       {"--origin=a b/c", "--cluster-name=Foo!", "--namespace=../x", "--kube-api-qps=nan", "--kube-api-qps=inf", "--hub-address=hub:7000",
        "--hub-address=0.0.0.0", "--broker-image=Broker v1", "--scheduler-image=a:", "--executor-image=/a", "--executor-cuda-image=A",
        "--watch-namespaces=a,B", "--watch-namespaces=team/a", "--exec-program=./aws", "--scheduler=nowhere", "--image-pull-policy=never",
        "--feature-gates=DryRunTrials=false", "--feature-gates=Dry=true", "--feature-gates=DryRunTrials"}) {
    Flags flags;
    CLI::App app;
    AddFlags(app, flags);
    const char* const argv[] = {kProgram, argument};
    const std::string flag = std::string(argument).substr(0, std::string(argument).find('='));
    try {
      app.parse(2, argv);
      ADD_FAILURE() << argument;
    } catch (const CLI::ParseError& error) {
      EXPECT_THAT(std::string(error.what()), HasSubstr(flag));
    }
  }
}

TEST(ConfigFileTest, FlagsThatCanBeAreTaken) {
  for (const char* argument : {"--hub-address=hub.example.org", "--hub-address=2001:db8::1", "--broker-image=registry:5000/ml/broker:v1",
                               "--watch-namespaces=a,b-2", "--exec-program=aws", "--exec-program=/bin/aws"}) {
    Flags flags;
    CLI::App app;
    AddFlags(app, flags);
    const char* const argv[] = {kProgram, argument};
    EXPECT_NO_THROW(app.parse(2, argv)) << argument;
  }
}

TEST(ConfigFileTest, TheProgramEndsWithTwoForAFileThatIsWrongOrAway) {
  const base::TempFolder folder;
  const std::string path = folder.Write("operator.yaml", absl::StrCat(kHead, "workers: 0\n"));
  const auto run = [](const std::string& config, int& code) {
    std::string program = kProgram, flag = absl::StrCat("--config=", config);
    char* const argv[] = {program.data(), flag.data(), nullptr};
    Flags flags;
    ::testing::internal::CaptureStderr();
    code = ParseFlags(2, const_cast<char**>(argv), flags).value_or(-1);
    return ::testing::internal::GetCapturedStderr();
  };
  int code = 0;
  EXPECT_THAT(run(path, code), HasSubstr(absl::StrCat(path, ":3: workers: must be at least 1, got 0")));
  EXPECT_EQ(code, 2);
  EXPECT_THAT(run(folder / "none.yaml", code), HasSubstr("none.yaml"));
  EXPECT_EQ(code, 2);
}

TEST(ConfigFileTest, TheProgramWarnsOfRemovedGates) {
  std::string program = kProgram, flag = "--feature-gates=DryRunTrials=true";
  char* argv[] = {program.data(), flag.data(), nullptr};
  Flags flags;
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(ParseFlags(2, argv, flags), std::nullopt);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("DryRunTrials) is always on"));
}

}  // namespace
}  // namespace fusionllm::op::manager
