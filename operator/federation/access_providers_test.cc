#include "operator/federation/access_providers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/base/testing/temp_folder.h"

namespace fusionllm::op::federation {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

TEST(AccessProvidersTest, AFileIsReadInOrder) {
  // The first as upstream's own example has it, nulls and all.
  const auto providers = ParseAccessProviders(R"({"providers": [
    {"name": "secretreader", "execConfig": {"apiVersion": "client.authentication.k8s.io/v1", "args": null,
      "command": "/bin/secretreader-plugin", "env": null, "provideClusterInfo": true}},
    {"name": "google", "profileSourcedCLIArgsPolicy": "Append", "profileSourcedEnvVarsPolicy": "AppendIfNotExists",
      "execConfig": {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": "gke-gcloud-auth-plugin", "args": ["--quiet", ""],
        "env": [{"name": "REGION", "value": "eu"}], "installHint": "in the image", "interactiveMode": "IfAvailable"}},
    {"name": "x", "execConfig": {"apiVersion": "client.authentication.k8s.io/v1", "command": "x"}, "profileSourcedEnvVarsPolicy": "Replace",
      "profileSourcedCLIArgsPolicy": "Ignore", "profileSourcedEnvVarNames": ["SITE", "ZONE"]}]})",
                                              "providers.json");
  ASSERT_TRUE(providers.ok()) << providers.status();
  ASSERT_EQ(providers->size(), 3u);
  const AccessProvider& first = providers->at(0);
  EXPECT_EQ(first.name, "secretreader");
  EXPECT_EQ(first.exec,
            (kube::ExecConfig{
                .api_version = "client.authentication.k8s.io/v1", .command = "/bin/secretreader-plugin", .provide_cluster_info = true}));
  EXPECT_FALSE(first.append_args);
  EXPECT_EQ(first.env_policy, AccessProvider::EnvPolicy::kIgnore);
  const AccessProvider& second = providers->at(1);
  EXPECT_THAT(second.exec.args, ElementsAre("--quiet", ""));
  EXPECT_THAT(second.exec.env, ElementsAre(Pair("REGION", "eu")));
  EXPECT_EQ(second.exec.install_hint, "in the image");
  EXPECT_TRUE(second.append_args);
  EXPECT_EQ(second.env_policy, AccessProvider::EnvPolicy::kAppendIfNotExists);
  EXPECT_FALSE(providers->at(2).append_args);
  EXPECT_EQ(providers->at(2).env_policy, AccessProvider::EnvPolicy::kReplace);
  EXPECT_THAT(second.profile_env, ::testing::IsEmpty());
  EXPECT_THAT(providers->at(2).profile_env, ElementsAre("SITE", "ZONE"));
  EXPECT_THAT(CommandsOf(*providers), ElementsAre("/bin/secretreader-plugin", "gke-gcloud-auth-plugin", "x"));
}

TEST(AccessProvidersTest, ErrorsNameTheFileAndTheField) {
  const auto with = [](const std::string& fields) {
    return absl::StrCat(
        R"({"providers": [{"name": "a", "execConfig": {"apiVersion": "client.authentication.k8s.io/v1", "command": "c"}}, {)", fields,
        "}]}");
  };
  const auto exec = [&](const std::string& fields) {
    return with(
        absl::StrCat(R"("name": "b", "execConfig": {"apiVersion": "client.authentication.k8s.io/v1", "command": "c", )", fields, "}"));
  };
  const std::string good_exec = R"("execConfig": {"apiVersion": "client.authentication.k8s.io/v1", "command": "c"})";
  const std::pair<std::string, std::string> cases[] = {
      {"", "f.json:1: is no JSON"},
      {"{\"providers\":\n[\n{]}", "f.json:3: is no JSON"},
      {"providers: []", "f.json:1: is no JSON"},
      {"{\"providers\": 1e999}", "f.json: holds a number that is too large"},
      {"[]", "f.json: must be an object"},
      {"null", "f.json: must be an object"},
      {"{}", "f.json: providers names none"},
      {R"({"providers": []})", "f.json: providers names none"},
      {R"({"providers": {}})", "f.json: providers must be a list"},
      {R"({"provider": []})", "f.json: provider is no field: known are providers"},
      {R"({"providers": ["a"]})", "f.json: providers[0] must be an object"},
      {with(good_exec), "f.json: providers[1].name is required"},
      {with(R"("name": 7, )" + good_exec), "f.json: providers[1].name must be text"},
      {with(R"("name": "a", )" + good_exec), "f.json: providers[1].name was there before: a"},
      {with(R"("name": "b")"), "f.json: providers[1].execConfig must be an object"},
      {with(R"("name": "b", "execConfg": {})"), "f.json: providers[1].execConfg is no field"},
      {with(R"("name": "b", "execConfig": {"command": "c"})"), "f.json: providers[1].execConfig.apiVersion is required"},
      {with(R"("name": "b", "execConfig": {"apiVersion": "client.authentication.k8s.io/v1"})"),
       "f.json: providers[1].execConfig.command is required"},
      {with(R"("name": "b", "execConfig": {"apiVersion": "v1", "command": "c"})"),
       "f.json: providers[1].execConfig.apiVersion must be client.authentication.k8s.io/v1 or client.authentication.k8s.io/v1beta1, not "
       "\"v1\""},
      {with(R"("name": "b", "execConfig": {"apiVersion": "client.authentication.k8s.io/v1", "command": "./bin/login"})"),
       "f.json: providers[1].execConfig.command must be an absolute path, or a name without '/' that is looked for in $PATH, not "
       "\"./bin/login\""},
      {exec(R"("args": "x")"), "f.json: providers[1].execConfig.args must be a list"},
      {exec(R"("args": ["x", 1])"), "f.json: providers[1].execConfig.args[1] must be text"},
      {exec(R"("args": ["x\u0000y"])"), "f.json: providers[1].execConfig.args[0] must be text without NULs"},
      {exec(R"("env": [{"value": "x"}])"), "f.json: providers[1].execConfig.env[0].name is required"},
      {exec(R"("env": [{"name": "A", "valueFrom": {}}])"), "f.json: providers[1].execConfig.env[0].valueFrom is no field"},
      {exec(R"("provideClusterInfo": "yes")"), "f.json: providers[1].execConfig.provideClusterInfo must be true or false"},
      {exec(R"("interactiveMode": "Always")"), "f.json: providers[1].execConfig.interactiveMode must be Never"},
      {with(R"("name": "b", "profileSourcedCLIArgsPolicy": "Replace", )" + good_exec),
       "f.json: providers[1].profileSourcedCLIArgsPolicy must be one of Ignore, Append"},
      {with(R"("name": "b", "profileSourcedEnvVarsPolicy": "append", )" + good_exec),
       "f.json: providers[1].profileSourcedEnvVarsPolicy must be one of Ignore, AppendIfNotExists, Replace"},
      {with(R"("name": "b", "profileSourcedEnvVarNames": "SITE", )" + good_exec),
       "f.json: providers[1].profileSourcedEnvVarNames must be a list"},
      {with(R"("name": "b", "profileSourcedEnvVarNames": ["SITE", 1], )" + good_exec),
       "f.json: providers[1].profileSourcedEnvVarNames[1] must be the name of a variable"},
      {with(R"("name": "b", "profileSourcedEnvVarNames": ["A=B"], )" + good_exec),
       "f.json: providers[1].profileSourcedEnvVarNames[0] must be the name of a variable"},
      {std::string((1 << 20) + 1, ' '), "f.json: is longer than 1048576 bytes"},
  };
  for (const auto& [text, message] : cases) {
    const absl::Status status = ParseAccessProviders(text, "f.json").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_TRUE(absl::StartsWith(status.message(), message)) << status.message() << "\n" << message;
  }
}

TEST(AccessProvidersTest, AFileIsNamedByItsPath) {
  const base::TempFolder folder;
  const std::string path = folder.path() + "/providers.json";
  EXPECT_TRUE(absl::IsNotFound(LoadAccessProviders(path).status()));
  std::ofstream(path) << "{";
  EXPECT_THAT(std::string(LoadAccessProviders(path).status().message()), HasSubstr(path + ":1: is no JSON"));
}

}  // namespace
}  // namespace fusionllm::op::federation
