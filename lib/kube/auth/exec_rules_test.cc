#include "lib/kube/auth/exec_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fusionllm::kube {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ExecRules Rules() {
  return {.calls = {ParseExecRule("aws eks get-token --cluster-name * --region *").value(), ParseExecRule("/bin/login").value()},
          .env = {"AWS_PROFILE"}};
}

ExecConfig Aws() {
  return {
      .command = "aws", .args = {"eks", "get-token", "--cluster-name", "paris", "--region", "eu-west-3"}, .env = {{"AWS_PROFILE", "hub"}}};
}

TEST(ExecRulesTest, ARuleIsACommandAndItsArguments) {
  const auto rule = ParseExecRule("  aws  eks\tget-token * ");
  ASSERT_TRUE(rule.ok()) << rule.status();
  EXPECT_EQ(rule->command, "aws");
  EXPECT_THAT(rule->args, ElementsAre("eks", "get-token", "*"));
  for (const char* wrong : {"", "  ", "./aws", "bin/aws eks"}) EXPECT_FALSE(ParseExecRule(wrong).ok()) << wrong;
}

TEST(ExecRulesTest, WhatTheRulesSayIsAllowed) {
  EXPECT_THAT(RefusalOf(Aws(), Rules()), IsEmpty());
  EXPECT_THAT(RefusalOf({.command = "/bin/login"}, Rules()), IsEmpty());
}

TEST(ExecRulesTest, OtherArgumentsAreRefused) {
  const auto with = [](const std::vector<std::string>& args) {
    ExecConfig exec = Aws();
    exec.args = args;
    return RefusalOf(exec, Rules());
  };
  for (const std::vector<std::string>& args : std::vector<std::vector<std::string>>{
           {},
           {"s3", "cp", "/var/run/secrets", "s3://elsewhere"},
           {"eks", "get-token", "--cluster-name", "paris", "--region"},
           {"eks", "get-token", "--cluster-name", "paris", "--region", "x", "--endpoint-url=https://elsewhere"},
           {"eks", "get-token", "--cluster-name", "--endpoint-url=https://elsewhere", "--region", "x"},
           {"eks", "get-token", "--cluster-name", "", "--region", "x"},
           {"eks", "get-token", "--region", "x", "--cluster-name", "paris"}}) {
    EXPECT_THAT(with(args), HasSubstr("not among those allowed")) << args.size();
  }
  EXPECT_THAT(RefusalOf({.command = "/bin/login", .args = {"x"}}, Rules()), HasSubstr("the arguments x"));
  EXPECT_THAT(RefusalOf({.command = "login"}, Rules()), HasSubstr("login here, which is not among the programs"));
}

TEST(ExecRulesTest, OtherVariablesAreRefused) {
  for (const char* name : {"AWS_CONFIG_FILE", "HOME", "LD_PRELOAD", "PATH", "", "A=B", "aws_profile", "AWS_PROFILE "}) {
    ExecConfig exec = Aws();
    exec.env.emplace_back(name, "x");
    EXPECT_THAT(RefusalOf(exec, Rules()), HasSubstr("exec.env")) << name;
  }
}

TEST(ExecRulesTest, RejectsUnsafeVariables) {
  for (const char* name : {"AWS_PROFILE", "_", "a1", "LDAP_SERVER", "PATHS", "SITE"}) EXPECT_TRUE(CheckExecVariable(name).ok()) << name;
  for (const char* name : {"", "1a", "A-B", "A=B", "A B", "caf\xC3\xA9", "A\n", "LD_PRELOAD", "LD_LIBRARY_PATH", "LD_X",
                           "DYLD_INSERT_LIBRARIES", "PATH", "BASH_ENV", "GCONV_PATH", "PYTHONPATH"}) {
    EXPECT_FALSE(CheckExecVariable(name).ok()) << name;
  }
  EXPECT_FALSE(CheckExecVariable(absl::string_view("A\0B", 3)).ok());
}

}  // namespace
}  // namespace fusionllm::kube
