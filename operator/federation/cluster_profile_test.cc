#include "operator/federation/cluster_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/kube/auth/kubeconfig.h"

namespace fusionllm::op::federation {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using EnvPolicy = AccessProvider::EnvPolicy;

constexpr char kArgs[] = "clusterprofiles.multicluster.x-k8s.io/exec/additional-args";
constexpr char kEnvs[] = "clusterprofiles.multicluster.x-k8s.io/exec/additional-envs";

AccessProvider Provider(const std::string& name) {
  return {.name = name,
          .exec = {.api_version = "client.authentication.k8s.io/v1",
                   .command = name + "-login",
                   .args = {"token"},
                   .env = {{"REGION", "eu"}},
                   .provide_cluster_info = true,
                   .install_hint = "ask"}};
}

// Braces around one value are no list to this library.
json List(const json& value) { return value.is_array() ? value : json::array({value}); }

std::string Profile(const json& access, const char* list = "accessProviders") { return json{{"status", {{list, List(access)}}}}.dump(); }

json Access(const std::string& name, const std::string& server, const json& extensions = json::array()) {
  return {{"name", name}, {"cluster", {{"server", server}, {"extensions", List(extensions)}}}};
}

kube::ClientConfig ConfigOf(const std::string& profile, const AccessProviders& providers) {
  const auto text = KubeconfigOfProfile(profile, providers);
  EXPECT_TRUE(text.ok()) << text.status();
  if (!text.ok()) return {};
  const auto kubeconfig = kube::ParseKubeconfig(*text, "kubeconfig", "");
  EXPECT_TRUE(kubeconfig.ok()) << kubeconfig.status() << "\n" << *text;
  return kubeconfig.ok() ? kube::ResolveContext(*kubeconfig).value_or(kube::ClientConfig{}) : kube::ClientConfig{};
}

TEST(ClusterProfileTest, TheServerIsTheProfilesAndTheProgramTheProviders) {
  const json cluster = {{"server", "https://paris:6443"},
                        {"tls-server-name", "paris"},
                        {"certificate-authority-data", "Q0E="},
                        {"proxy-url", "socks5://proxy:1"},
                        {"extensions", {{{"name", "client.authentication.k8s.io/exec"}, {"extension", {{"clusterName", "7\n\"é\" #{"}}}}}}};
  const kube::ClientConfig config = ConfigOf(Profile({{{"name", "a"}, {"cluster", cluster}}}), {Provider("a")});
  EXPECT_EQ(config.server, "https://paris:6443");
  EXPECT_EQ(config.tls_server_name, "paris");
  EXPECT_EQ(config.ca.data, "CA");
  EXPECT_EQ(config.proxy_url, "socks5://proxy:1");
  EXPECT_EQ(config.exec, Provider("a").exec);
  EXPECT_EQ(json::parse(config.exec_cluster_config), json({{"clusterName", "7\n\"é\" #{"}}));
  EXPECT_FALSE(config.insecure);
}

// The list of a profile is a set by name; which of several is used is for the one who runs the operator to say.
TEST(ClusterProfileTest, OfSeveralProvidersTheFirstOfTheFileIsUsed) {
  const json both = {Access("b", "https://b"), Access("a", "https://a")};
  EXPECT_EQ(ConfigOf(Profile(both), {Provider("none"), Provider("a"), Provider("b")}).server, "https://a");
  EXPECT_EQ(ConfigOf(Profile(both), {Provider("b"), Provider("a")}).server, "https://b");
  EXPECT_EQ(ConfigOf(Profile(both, "credentialProviders"), {Provider("a")}).server, "https://a") << "as it was called before";
  const json old_and_new = {
      {"status", {{"credentialProviders", {Access("a", "https://old")}}, {"accessProviders", {Access("a", "https://new")}}}}};
  EXPECT_EQ(ConfigOf(old_and_new.dump(), {Provider("a")}).server, "https://new");
}

TEST(ClusterProfileTest, ArgumentsAreAppendedOnlyWhereTheProviderAllowsIt) {
  AccessProviders providers = {Provider("a")};
  const std::string profile = Profile({Access("a", "https://a", {{{"name", kArgs}, {"extension", {"--cluster", "paris: # x"}}}})});
  EXPECT_THAT(ConfigOf(profile, providers).exec->args, ElementsAre("token"));
  providers[0].append_args = true;
  EXPECT_THAT(ConfigOf(profile, providers).exec->args, ElementsAre("token", "--cluster", "paris: # x"));
  const json most = {{"name", kArgs}, {"extension", std::vector<std::string>(64, std::string(4096, 'a'))}};
  EXPECT_THAT(ConfigOf(Profile({Access("a", "https://a", {most})}), providers).exec->args, ::testing::SizeIs(65));
}

TEST(ClusterProfileTest, VariablesAreSetAsTheProviderAllowsIt) {
  AccessProviders providers = {Provider("a")};
  const std::string profile = Profile({Access("a", "https://a", {{{"name", kEnvs}, {"extension", {{"REGION", "us"}, {"ZONE", "z"}}}}})});
  EXPECT_THAT(ConfigOf(profile, providers).exec->env, ElementsAre(Pair("REGION", "eu")));
  providers[0].env_policy = EnvPolicy::kAppendIfNotExists;
  providers[0].profile_env = {"ZONE"};
  EXPECT_THAT(ConfigOf(profile, providers).exec->env, ElementsAre(Pair("REGION", "eu"), Pair("ZONE", "z")));
  providers[0].env_policy = EnvPolicy::kReplace;
  providers[0].profile_env = {"REGION", "ZONE"};
  EXPECT_THAT(ConfigOf(profile, providers).exec->env, ElementsAre(Pair("REGION", "us"), Pair("ZONE", "z")));
}

TEST(ClusterProfileTest, OnlyVariablesThatTheProviderNamesAreSet) {
  AccessProviders providers = {Provider("a")};
  providers[0].profile_env = {"ZONE"};
  const auto refused = [&](const std::string& name) {
    const json extension = {{"name", kEnvs}, {"extension", {{name, "x"}}}};
    const absl::Status status = KubeconfigOfProfile(Profile({Access("a", "https://a", {extension})}), providers).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << name << ": " << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(absl::StrCat("must not set the variable \"", name, "\": it is not in the profileSourcedEnvVarNames of a")));
  };
  for (const EnvPolicy policy : {EnvPolicy::kAppendIfNotExists, EnvPolicy::kReplace}) {
    providers[0].env_policy = policy;
    for (const char* name : {"GCONV_PATH", "BASH_ENV", "PYTHONPATH", "NODE_OPTIONS", "AWS_CONFIG_FILE", "PATH", "LD_PRELOAD", "zone"}) {
      refused(name);
    }
  }
  refused("REGION");  // that the provider sets it for itself is no leave to replace it
}

TEST(ClusterProfileTest, WhatOneProfileAddsIsNotThereForTheNext) {
  AccessProviders providers = {Provider("a")};
  providers[0].append_args = true;
  providers[0].env_policy = EnvPolicy::kReplace;
  providers[0].profile_env = {"paris", "tokyo"};
  const auto profile = [](const std::string& name) {
    const json extensions = {{{"name", kArgs}, {"extension", {name}}}, {{"name", kEnvs}, {"extension", {{name, "1"}}}}};
    return Profile({Access("a", "https://a", extensions)});
  };
  const AccessProviders before = providers;
  const std::string paris = KubeconfigOfProfile(profile("paris"), providers).value_or("");
  EXPECT_THAT(ConfigOf(profile("tokyo"), providers).exec->args, ElementsAre("token", "tokyo"));
  EXPECT_THAT(ConfigOf(profile("tokyo"), providers).exec->env, ElementsAre(Pair("REGION", "eu"), Pair("tokyo", "1")));
  EXPECT_EQ(KubeconfigOfProfile(profile("paris"), providers).value_or("none"), paris) << "or its connection would be made anew";
  EXPECT_EQ(providers, before);
}

TEST(ClusterProfileTest, FilesAndTrustInAnybodyAreLeftToTheChecksOfKubeconfigs) {
  const json cluster = {{"server", "https://a"}, {"certificate-authority", "/etc/ca"}, {"insecure-skip-tls-verify", true}};
  const kube::ClientConfig config = ConfigOf(Profile({{{"name", "a"}, {"cluster", cluster}}}), {Provider("a")});
  EXPECT_EQ(config.ca.path, "/etc/ca");
  EXPECT_TRUE(config.insecure);
}

TEST(ClusterProfileTest, ErrorsNameTheField) {
  AccessProviders providers = {Provider("a")};
  providers[0].append_args = true;
  providers[0].env_policy = EnvPolicy::kAppendIfNotExists;
  const auto with = [](const json& cluster) { return Profile({Access("b", "https://b"), {{"name", "a"}, {"cluster", cluster}}}); };
  const auto extended = [&](const char* name, const json& extension) {
    return Profile({Access("a", "https://a", {{{"name", "x"}}, {{"name", name}, {"extension", extension}}})});
  };
  const json many = {{"name", kArgs}, {"extension", std::vector<std::string>(33, "--x")}};
  const std::string path = "status.accessProviders[0].cluster.extensions[1].extension ";
  const std::pair<std::string, std::string> cases[] = {
      {"", "offers none of the access providers that the operator is given (a): it has none"},
      {"{", "it has none"},
      {R"({"status": []})", "it has none"},
      {Profile(json::array()), "it has none"},
      {Profile({{"a", {{"server", "x"}}}}), "it has none"},
      {Profile({Access("b", "https://b"), Access("c", "https://c")}), "is given (a): it has b, c"},
      {with(nullptr), "status.accessProviders[1].cluster.server is required"},
      {with("x"), "status.accessProviders[1].cluster.server is required"},
      {with({{"server", 7}}), "status.accessProviders[1].cluster.server must be text"},
      {with({{"server", "x"}, {"proxy-url", {"y"}}}), "status.accessProviders[1].cluster.proxy-url must be text"},
      {with({{"server", "x"}, {"insecure-skip-tls-verify", "no"}}),
       "status.accessProviders[1].cluster.insecure-skip-tls-verify must be true or false"},
      {extended(kArgs, "--x"), path + "must be a list of texts"},
      {extended(kArgs, {{"args", {"--x"}}}), path + "must be a list of texts"},
      {extended(kArgs, {"--x", 1}), path + "must be a list of texts"},
      {extended(kArgs, json::array({std::string("a\0b", 3)})), path + "holds a text with control characters"},
      {extended(kArgs, {"--x", "a\x1b[2J"}), path + "holds a text with control characters"},
      {extended(kArgs, {"--x", "a\nb"}), path + "holds a text with control characters"},
      {extended(kArgs, {"--x", std::string(4097, 'a')}), path + "holds a text of more than 4096 bytes"},
      {extended(kArgs, json(std::vector<std::string>(65, "--x"))), path + "adds more than 64 arguments"},
      {Profile({Access("a", "https://a", {many, many})}), path + "adds more than 64 arguments"},
      {extended(kArgs, nullptr), path + "must be a list of texts"},
      {extended(kEnvs, {"A=b"}), path + "must map names of variables to texts"},
      {extended(kEnvs, {{"A", 1}}), path + "must map names of variables to texts"},
      {extended(kEnvs, {{"A", "a\nb"}}), path + "holds a text with control characters"},
      {extended(kEnvs, {{"", "x"}}), path + "must not set the variable \"\""},
      {extended(kEnvs, {{"A=B", "x"}}), path + "must not set the variable \"A=B\""},
      {extended(kEnvs, {{"LD_PRELOAD", "x"}}), path + "must not set the variable \"LD_PRELOAD\""},
      {extended(kEnvs, {{"PATH", "x"}}), path + "must not set the variable \"PATH\""},
      {extended(kEnvs, {{"KUBERNETES_EXEC_INFO", "x"}}), path + "must not set the variable \"KUBERNETES_EXEC_INFO\""},
  };
  for (const auto& [profile, message] : cases) {
    const absl::Status status = KubeconfigOfProfile(profile, providers).status();
    EXPECT_FALSE(status.ok()) << profile;
    EXPECT_EQ(absl::IsNotFound(status), message.find("it has") != std::string::npos) << profile;
    EXPECT_THAT(std::string(status.message()), HasSubstr(message)) << profile;
  }
}

}  // namespace
}  // namespace fusionllm::op::federation
