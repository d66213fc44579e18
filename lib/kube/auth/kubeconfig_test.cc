#include "lib/kube/auth/kubeconfig.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "lib/base/testing/temp_folder.h"

namespace fusionllm::kube {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kConfig[] = R"(
apiVersion: v1
kind: Config
current-context: hub
clusters:
- name: hub
  cluster:
    server: https://10.0.0.1:6443
    certificate-authority-data: Q0EgUEVN
    tls-server-name: kubernetes
    proxy-url: socks5://proxy:1080
- name: paris
  cluster: {server: "https://paris:6443", certificate-authority: pki/ca.pem, insecure-skip-tls-verify: false}
users:
- name: admin
  user: {client-certificate-data: Q0VSVA==, client-key-data: S0VZ}
- name: robot
  user: {token: abc, tokenFile: /run/token}
- name: cloud
  user:
    exec:
      apiVersion: client.authentication.k8s.io/v1
      command: ./bin/login
      args: [token, --cluster, c]
      env: [{name: REGION, value: eu}]
      provideClusterInfo: true
      interactiveMode: IfAvailable
      installHint: install it
contexts:
- name: hub
  context: {cluster: hub, user: admin, namespace: team}
- name: paris
  context: {cluster: paris, user: robot}
- name: cloud
  context: {cluster: paris, user: cloud}
- name: lost
  context: {cluster: tokyo, user: admin}
)";

ClientConfig Resolve(const std::string& context) {
  const auto config = ParseKubeconfig(kConfig, "config", "/etc/kube");
  EXPECT_TRUE(config.ok()) << config.status();
  const auto client = ResolveContext(*config, context);
  EXPECT_TRUE(client.ok()) << client.status();
  return *client;
}

TEST(Kubeconfig, InlineDataIsDecodedInMemory) {
  const ClientConfig client = Resolve("");
  EXPECT_EQ(client.server, "https://10.0.0.1:6443");
  EXPECT_EQ(client.ca.data, "CA PEM");
  EXPECT_EQ(client.certificate.data, "CERT");
  EXPECT_EQ(client.key.data, "KEY");
  EXPECT_EQ(client.tls_server_name, "kubernetes");
  EXPECT_EQ(client.proxy_url, "socks5://proxy:1080");
  EXPECT_EQ(client.ns, "team");
}

TEST(Kubeconfig, PathsAreRelativeToTheFile) {
  const ClientConfig client = Resolve("paris");
  EXPECT_EQ(client.ca.path, "/etc/kube/pki/ca.pem");
  EXPECT_EQ(client.token_file, "/run/token");
  EXPECT_EQ(client.token, "abc");
}

TEST(Kubeconfig, ATokenFileIsRelativeToTheFileAndAProgramWithoutASlashIsLookedForInPath) {
  const auto config = ParseKubeconfig(
      "users:\n- name: a\n  user: {tokenFile: tok}\n- name: b\n  user:\n    exec: {command: login, interactiveMode: Never}\n"
      "contexts:\n- name: a\n  context: {cluster: c, user: a}\n- name: b\n  context: {cluster: c, user: b}\nclusters:\n- name: c\n",
      "config", "/etc/kube");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(ResolveContext(*config, "a")->token_file, "/etc/kube/tok");
  EXPECT_EQ(ResolveContext(*config, "b")->exec->command, "login");
}

TEST(Kubeconfig, ExecIsReadWhole) {
  const ClientConfig client = Resolve("cloud");
  ASSERT_TRUE(client.exec.has_value());
  EXPECT_EQ(client.exec->command, "/etc/kube/./bin/login");
  EXPECT_THAT(client.exec->args, ElementsAre("token", "--cluster", "c"));
  EXPECT_THAT(client.exec->env, ElementsAre(std::pair<std::string, std::string>("REGION", "eu")));
  EXPECT_TRUE(client.exec->provide_cluster_info);
  EXPECT_FALSE(client.exec->needs_terminal);
}

TEST(Kubeconfig, AProgramThatWantsATerminalIsKnownAsOne) {
  const auto config = ParseKubeconfig(
      "users:\n- name: a\n  user:\n    exec: {command: login, interactiveMode: Always}\n"
      "contexts:\n- name: c\n  context: {cluster: c, user: a}\nclusters:\n- name: c\n",
      "config", "");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_TRUE(ResolveContext(*config, "c")->exec->needs_terminal);
}

TEST(Kubeconfig, JsonIsYaml) {
  const auto config = ParseKubeconfig(R"({"clusters":[{"name":"a","cluster":{"server":"https://a"}}],
    "contexts":[{"name":"c","context":{"cluster":"a"}}],"users":null,"current-context":"c"})",
                                      "secret", "");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(ResolveContext(*config)->server, "https://a");
}

TEST(Kubeconfig, WhatIsMissingIsNamed) {
  const auto config = *ParseKubeconfig(kConfig, "config", "");
  EXPECT_THAT(std::string(ResolveContext(config, "nowhere").status().message()), HasSubstr("no context \"nowhere\""));
  EXPECT_THAT(std::string(ResolveContext(config, "lost").status().message()), HasSubstr("the cluster \"tokyo\""));
  EXPECT_TRUE(absl::IsNotFound(ResolveContext({}, "").status()));
}

struct BadCase {
  const char* text;
  const char* message;
};

TEST(Kubeconfig, ErrorsNameFileLineAndField) {
  const BadCase cases[] = {
      {"[]", "config: is no kubeconfig"},
      {"", "config: is no kubeconfig"},
      {"kind: Pod", "its kind is not Config"},
      {"clusters:\n- name: a\n  cluster:\n    server: [1]\n", "config:4: clusters[0].cluster.server must be text"},
      {"clusters:\n- cluster: {server: a}\n", "config:2: clusters[0] has no name"},
      {"clusters:\n- name: a\n- name: a\n", "config:3: clusters[1] has a name that was there before"},
      {"clusters: {}", "config:1: clusters must be a list"},
      {"users:\n- name: a\n  user: {client-key-data: '***secret***'}\n", "users[0].user.client-key-data is no base64"},
      {"users:\n- name: a\n  user:\n    exec: {apiVersion: v1}\n", "users[0].user.exec has no command"},
      {"users:\n- name: a\n  user:\n    exec: {command: a, interactiveMode: Often}\n",
       "config:4: users[0].user.exec.interactiveMode must be Never, IfAvailable or Always"},
      {"clusters:\n- name: a\n  cluster: {insecure-skip-tls-verify: maybe}\n", "must be true or false"},
      {"a: b: c\n", "is no YAML"},
      {"a: &x [*x, *x]\nclusters: *nobody\n", "is no YAML"},
  };
  for (const BadCase& bad : cases) {
    const absl::Status status = ParseKubeconfig(bad.text, "config", "").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bad.text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(bad.message)) << bad.text;
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("secret"))) << bad.text;
  }
}

std::string WithExtension(const std::string& yaml) {
  return absl::StrCat("x: &text \"", std::string(1000, 'x'), "\"\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c}}]\n",
                      "clusters:\n- name: c\n  cluster:\n    server: https://c\n    extensions:\n",
                      "    - {name: other, extension: {a: b}}\n    - {name: client.authentication.k8s.io/exec, extension: ", yaml, "}\n");
}

TEST(Kubeconfig, ExecPluginGetsClusterExtension) {
  const auto config = ParseKubeconfig(WithExtension("{audience: \"7\", ports: [1, true, null, ~], deep: {a: yes}}"), "config", "");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(ResolveContext(*config)->exec_cluster_config, R"({"audience":"7","deep":{"a":true},"ports":[1,true,null,null]})");
  EXPECT_EQ(ResolveContext(*ParseKubeconfig(WithExtension("~"), "config", ""))->exec_cluster_config, "");
}

TEST(Kubeconfig, ScalarsOfAnExtensionAreWhatKubectlTakesThemFor) {
  const auto json_of = [](const std::string& yaml) {
    const auto config = ParseKubeconfig(WithExtension(yaml), "config", "");
    return config.ok() ? ResolveContext(*config)->exec_cluster_config : std::string(config.status().message());
  };
  EXPECT_EQ(json_of("[0o17, 017, 0x1f, 0b11, 1_000, -5, 18446744073709551615]"), "[15,15,31,3,1000,-5,18446744073709551615]");
  EXPECT_EQ(json_of("[yes, No, on, off, True, FALSE]"), "[true,false,true,false,true,false]");
  EXPECT_EQ(json_of("[\"5\", '0o17', \"yes\", 'null', \"1_000\", !!str 7]"), R"(["5","0o17","yes","null","1_000","7"])");
  EXPECT_EQ(json_of("[null, ~, Null]"), "[null,null,null]");
  EXPECT_EQ(json_of("[1.5, 1e3, 2001-01-01, 1.2.3, v1]"), R"([1.5,1000.0,"2001-01-01","1.2.3","v1"])");
  EXPECT_EQ(json_of("{yes: 1, 0o17: 2, '0o17': 3}"), R"({"0o17":3,"15":2,"true":1})");
  EXPECT_THAT(json_of("[.inf]"), HasSubstr("clusters[0].cluster.extensions must hold no number that is not finite"));
}

TEST(Kubeconfig, WhatIsNoTextWithoutQuotesIsRefusedAsText) {
  const auto user = [](const std::string& field) {
    return ParseKubeconfig(absl::StrCat("users:\n- name: a\n  user: {", field, "}\n"), "config", "");
  };
  for (const char* number : {"17", "0o17", "1_000", "1e3", ".inf"}) {
    const absl::Status status = user(absl::StrCat("token: ", number)).status();
    EXPECT_EQ(status.message(), "config:3: users[0].user.token must be text, and without quotes it is a number in YAML") << number;
    const auto quoted = user(absl::StrCat("token: '", number, "'"));
    ASSERT_TRUE(quoted.ok()) << quoted.status();
    EXPECT_EQ(quoted->users.at("a").token, number);
  }
  EXPECT_THAT(std::string(user("token: yes").status().message()), HasSubstr("without quotes it is true or false"));
  EXPECT_EQ(user("token: 'yes'")->users.at("a").token, "yes");
  EXPECT_EQ(user("token: null")->users.at("a").token, "");
  EXPECT_EQ(user("token: 'null'")->users.at("a").token, "null");
  EXPECT_THAT(std::string(user("exec: {command: a, args: [x, 7]}").status().message()), HasSubstr("exec.args must be text"));
  EXPECT_TRUE(user("exec: {command: a, args: [x, '7']}").ok());
}

TEST(Kubeconfig, TrueAndFalseAreYamlsWordsForThem) {
  const auto insecure = [](const std::string& value) {
    return ParseKubeconfig(absl::StrCat("clusters: [{name: a, cluster: {insecure-skip-tls-verify: ", value, "}}]"), "config", "");
  };
  for (const char* yes : {"true", "True", "yes", "on"}) EXPECT_TRUE(insecure(yes)->clusters.at("a").insecure) << yes;
  for (const char* no : {"false", "FALSE", "no", "null", "~"}) EXPECT_FALSE(insecure(no)->clusters.at("a").insecure) << no;
  for (const char* neither : {"'true'", "1", "maybe", "[]"}) {
    EXPECT_THAT(std::string(insecure(neither).status().message()), HasSubstr("must be true or false")) << neither;
  }
}

TEST(Kubeconfig, AnExtensionIsBounded) {
  std::string aliases = "[*text";
  for (int i = 0; i < 70; ++i) aliases += ", *text";
  const std::string deep = std::string(40, '[') + std::string(40, ']');
  for (const std::string& yaml : {aliases + "]", deep, std::string("&me {again: *me, and: *me}")}) {
    EXPECT_THAT(std::string(ParseKubeconfig(WithExtension(yaml), "config", "").status().message()),
                HasSubstr("must be at most 65536 bytes"))
        << yaml;
  }
}

TEST(Kubeconfig, HugeAndDeepTextIsRefused) {
  EXPECT_FALSE(ParseKubeconfig(std::string(kMaxKubeconfigBytes + 1, ' '), "config", "").ok());
  EXPECT_FALSE(ParseKubeconfig(std::string(100'000, '['), "config", "").ok());
}

TEST(Kubeconfig, WhereNoneIsFoundItIsSaidWhoNamedIt) {
  const base::TempFolder folder;
  const char* const listed = std::getenv("KUBECONFIG");
  const std::optional<std::string> before = listed == nullptr ? std::nullopt : std::optional<std::string>(listed);
  const std::string empty = folder.Write("empty", "");
  setenv("KUBECONFIG", empty.c_str(), 1);
  EXPECT_EQ(LoadKubeconfigOrDefault("").status().message(),
            absl::StrCat(empty, ": is empty: there is no kubeconfig in it; the path is that of KUBECONFIG"));
  EXPECT_THAT(std::string(LoadKubeconfigOrDefault(empty).status().message()), Not(HasSubstr("KUBECONFIG")));
  unsetenv("KUBECONFIG");
  if (before.has_value()) setenv("KUBECONFIG", before->c_str(), 1);
}

TEST(Kubeconfig, OfSeveralFilesTheFirstWins) {
  const base::TempFolder folder;
  const auto write = [&](const std::string& name, const std::string& text) {
    std::ofstream(folder.path() + "/" + name) << text;
    return folder.path() + "/" + name;
  };
  const std::string one = write("one", "clusters: [{name: a, cluster: {server: 'https://one', certificate-authority: ca.pem}}]\n");
  const std::string two = write("two", R"(
current-context: c
clusters: [{name: a, cluster: {server: "https://two"}}, {name: b, cluster: {server: "https://b"}}]
contexts: [{name: c, context: {cluster: a}}, {name: d, context: {cluster: b}}]
)");
  const auto config = LoadKubeconfig({folder.path() + "/missing", one, two});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(ResolveContext(*config)->server, "https://one");
  EXPECT_EQ(ResolveContext(*config)->ca.path, folder.path() + "/ca.pem");
  EXPECT_EQ(ResolveContext(*config, "d")->server, "https://b");
  EXPECT_TRUE(absl::IsNotFound(LoadKubeconfig({folder.path() + "/missing"}).status()));
  // As a tool leaves a file that it has made and not filled, or emptied.
  std::vector<std::string> empty;
  for (const char* text :
       {"", "\n", " \t \n\n", "# nothing yet\n", "\n# nothing\n# at all", "---\n", "\xEF\xBB\xBF", "---\n# nothing\n...\n", "null\n"}) {
    empty.push_back(folder.Write(absl::StrCat("empty-", empty.size()), text));
    for (const std::vector<std::string>& paths :
         {std::vector{empty.back(), one, two}, {one, empty.back(), two}, {one, two, empty.back()}}) {
      const auto merged = LoadKubeconfig(paths);
      ASSERT_TRUE(merged.ok()) << "\"" << text << "\": " << merged.status();
      EXPECT_EQ(ResolveContext(*merged)->server, "https://one");
      EXPECT_EQ(ResolveContext(*merged, "d")->server, "https://b");
    }
  }
  const absl::Status none = LoadKubeconfig(empty).status();
  EXPECT_TRUE(absl::IsNotFound(none)) << none;
  EXPECT_EQ(none.message(), absl::StrCat(empty[0], ": is empty: there is no kubeconfig in it"));
  for (const char* text : {"[]", "text", "{}\n---\n"}) {
    const std::string odd = folder.Write("odd", text);
    EXPECT_EQ(LoadKubeconfig({one, odd}).ok(), text[0] == '{') << text;
  }
  EXPECT_FALSE(ParseKubeconfig("", "Secret", "").ok()) << "one that is all there is";
  EXPECT_EQ(LoadKubeconfig({folder.path()}).status().code(), absl::StatusCode::kInvalidArgument);
}

// As editors of Windows leave it.
TEST(Kubeconfig, AByteOrderMarkAndCrLfChangeNothing) {
  const std::string plain =
      "current-context: c\nclusters:\n- name: a\n  cluster:\n    server: https://one\ncontexts:\n- name: c\n  context: {cluster: a, user: "
      "u}\nusers:\n- name: u\n  user:\n    token: secret\n";
  const std::string text = absl::StrCat("\xEF\xBB\xBF", absl::StrReplaceAll(plain, {{"\n", "\r\n"}}));
  const auto config = ParseKubeconfig(text, "config", "");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(ResolveContext(*config)->server, "https://one");
  EXPECT_EQ(config->users.at("u").token, "secret");
  const base::TempFolder folder;
  const auto loaded = LoadKubeconfig({folder.Write("config", text)});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(ResolveContext(*loaded)->server, "https://one");
}

TEST(Kubeconfig, EmptyEntriesOfItsListsArePassedOver) {
  for (const char* empty : {"", "{}", "~", "null"}) {
    const auto config =
        ParseKubeconfig(absl::StrCat("clusters:\n- ", empty, "\n- {name: c, cluster: {server: 'https://c'}}\nusers:\n- ", empty, "\n- ",
                                     empty, "\ncontexts:\n- {name: x, context: {cluster: c}}\n- ", empty, "\n"),
                        "config", "");
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_EQ(ResolveContext(*config, "x")->server, "https://c");
  }
  EXPECT_EQ(ParseKubeconfig("clusters:\n- {}\n- {cluster: {server: a}}\n", "config", "").status().message(),
            "config:3: clusters[1] has no name");
}

TEST(Kubeconfig, WhiteSpaceBehindATokenIsCutOffAndControlCharactersInItAreRefused) {
  const auto user = [](const std::string& token) {
    return ParseKubeconfig(absl::StrCat("users:\n- name: a\n  user: {token: ", token, "}\n"), "config", "");
  };
  for (const char* token : {R"("t")", R"("t\n")", R"("t\r\n")", R"("t \t")"}) EXPECT_EQ(user(token)->users.at("a").token, "t") << token;
  for (const char* bad : {R"("secret\nb")", R"("\nsecret")", R"("sec\tret")", R"("sec\x01ret")", R"("secret\x7f")", R"("sec\0ret")"}) {
    EXPECT_EQ(user(bad).status().message(), "config:3: users[0].user.token holds a control character, such as a line end, and is no token")
        << bad;
  }
}

TEST(Kubeconfig, WhatAFileLacksIsSaidWithItsName) {
  const base::TempFolder folder;
  const std::string one = folder.Write("one",
                                       "clusters: [{name: c, cluster: {server: x}}]\ncontexts: [{name: lost, context: {cluster: gone}},"
                                       " {name: x, context: {cluster: c, user: u}}, {name: z, context: {cluster: c, user: v}}]\n");
  const std::string two = folder.Write("two", "users: [{name: u, user: {}}]\n");
  const auto config = LoadKubeconfig({one, two});
  ASSERT_TRUE(config.ok()) << config.status();
  const std::string files = absl::StrCat(one, ":", two, ": ");
  const auto said = [&](const char* context) { return std::string(ResolveContext(*config, context).status().message()); };
  EXPECT_EQ(said("lyon"), files + "the kubeconfig has no context \"lyon\"");
  EXPECT_EQ(said(""), files + "the kubeconfig has no current context");
  EXPECT_EQ(said("lost"), files + "the context \"lost\" names the cluster \"gone\", which the kubeconfig does not have");
  EXPECT_EQ(said("z"), files + "the context \"z\" names the user \"v\", which the kubeconfig does not have");
  EXPECT_EQ(ResolveContext(*config, "x")->cluster_entry, files + "cluster \"c\"");
  EXPECT_EQ(ResolveContext(*config, "x")->user_entry, files + "user \"u\"");
}

}  // namespace
}  // namespace fusionllm::kube
