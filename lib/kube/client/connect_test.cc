#include "lib/kube/client/connect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <mutex>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/kube/client/rest_metrics.h"
#include "lib/kube/testing/fake_clock.h"
#include "lib/kube/testing/raw_server.h"
#include "lib/security/certificate_authority.h"

namespace fusionllm::kube {
namespace {

using ::testing::HasSubstr;

constexpr char kConfig[] = R"(
clusters: [{name: a, cluster: {server: "https://10.0.0.1:6443"}}, {name: b, cluster: {server: "https://10.0.0.2:6443"}}]
users: [{name: u, user: {token: abc}}, {name: thief, user: {tokenFile: /etc/token}}]
contexts:
- {name: a, context: {cluster: a, user: u, namespace: team}}
- {name: b, context: {cluster: b, user: u}}
- {name: thief, context: {cluster: a, user: thief}}
current-context: a
)";

TEST(Connect, ByTheContextOfAKubeconfig) {
  const base::TempFolder folder;
  const std::string path = folder.path() + "/config";
  std::ofstream(path) << kConfig;
  testing::FakeClock clock;
  const auto current = Connect({.kubeconfig = path}, clock);
  ASSERT_TRUE(current.ok()) << current.status();
  EXPECT_EQ((*current)->server(), "10.0.0.1:6443");
  EXPECT_EQ((*current)->default_namespace(), "team");
  EXPECT_EQ((*Connect({.kubeconfig = path, .context = "b"}, clock))->server(), "10.0.0.2:6443");
  EXPECT_TRUE(absl::IsNotFound(Connect({.kubeconfig = path + ".missing"}, clock).status()));
}

TEST(Connect, AForeignKubeconfigMayNotReadOurFiles) {
  testing::FakeClock clock;
  EXPECT_TRUE(ConnectUntrusted(kConfig, {}, clock).ok());
  const absl::Status thief = ConnectUntrusted(kConfig, {.context = "thief"}, clock).status();
  EXPECT_EQ(thief.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(thief.message()), HasSubstr("TokenFileNotAllowed: "));
}

TEST(Connect, CountsExecPluginRuns) {
  constexpr char kNoProgram[] = "/nonexistent/login";
  const std::string config = absl::StrCat(
      "clusters: [{name: c, cluster: {server: \"https://127.0.0.1\"}}]\nusers: [{name: u, user: {exec: {apiVersion: "
      "client.authentication.k8s.io/v1, interactiveMode: Never, command: ",
      kNoProgram, "}}}]\ncontexts: [{name: c, context: {cluster: c, user: u}}]\ncurrent-context: c\n");
  metrics::Registry registry("test", "1");
  const RestMetrics metrics(registry);
  const auto client =
      ConnectUntrusted(config, {.access = {.exec_allowed = {kNoProgram}}, .rest = {.max_retries = 0}}, RealClock(), &metrics);
  ASSERT_TRUE(client.ok()) << client.status();
  EXPECT_TRUE(absl::IsUnauthenticated((*client)->List({"", "v1", "namespaces", "Namespace", false}, "", {}, {}).status()));
  EXPECT_THAT(registry.Text(), HasSubstr("rest_client_exec_plugin_call_total{call_status=\"plugin_not_found_error\",code=\"1\"} 1\n"));
}

// Asks a cluster, by a kubeconfig that somebody else wrote, for its namespaces.
absl::Status Ask(const std::string& cluster) {
  const std::string config = absl::StrCat("clusters: [{name: c, cluster: {", cluster,
                                          "}}]\nusers: [{name: u, user: {token: abc}}]\n"
                                          "contexts: [{name: c, context: {cluster: c, user: u}}]\ncurrent-context: c\n");
  const auto client = ConnectUntrusted(config, {.rest = {.max_retries = 0}}, RealClock());
  if (!client.ok()) return client.status();
  return (*client)->List({"", "v1", "namespaces", "Namespace", false}, "", {}, {}).status();
}

TEST(Connect, AProxyOfAKubeconfigIsAskedForTheServer) {
  std::mutex mutex;
  std::string asked;
  const testing::RawServer proxy([&](testing::RawConnection& connection) {
    const std::string request = connection.ReadRequest();
    const std::lock_guard lock(mutex);
    asked = request;
    connection.Answer(407, "who are you?");
  });
  EXPECT_FALSE(Ask(absl::StrCat("server: \"https://api.example.invalid:6443\", proxy-url: \"", proxy.Url(), "\"")).ok());
  const std::lock_guard lock(mutex);
  EXPECT_THAT(asked, ::testing::StartsWith("CONNECT api.example.invalid:6443 HTTP/1.1\r\n"));
  EXPECT_THAT(asked, ::testing::Not(HasSubstr("abc"))) << "the token is the server's alone";
}

TEST(Connect, SoIsOneThatSpeaksSocks) {
  std::mutex mutex;
  std::string asked;
  const testing::RawServer proxy([&](testing::RawConnection& connection) {
    const std::string greeting = connection.ReadBytes();
    const std::lock_guard lock(mutex);
    asked = greeting;
  });
  EXPECT_FALSE(
      Ask(absl::StrCat("server: \"https://api.example.invalid:6443\", proxy-url: \"socks5://localhost:", proxy.port(), "\"")).ok());
  const std::lock_guard lock(mutex);
  ASSERT_FALSE(asked.empty());
  EXPECT_EQ(asked[0], 5) << "RFC 1928, section 3";
}

TEST(Connect, AServersCertificateMayHaveAnotherNameThanItsAddress) {
  const security::CertificateAuthority authority = *security::CertificateAuthority::Create();
  security::IssueOptions options;
  options.hosts = {"api.internal"};
  const security::IssuedCertificate identity = *authority.Issue("api", options);
  const testing::RawServer server(
      [](testing::RawConnection& connection) {
        while (!connection.ReadRequest().empty()) connection.Answer(200, R"({"kind":"NamespaceList","items":[]})");
      },
      {identity.certificate_pem, identity.private_key_pem, ""});
  const std::string cluster = absl::StrCat("server: \"https://127.0.0.1:", server.port(), "\", certificate-authority-data: \"",
                                           absl::Base64Escape(authority.certificate_pem()), "\"");
  EXPECT_FALSE(Ask(absl::StrCat(cluster, ", tls-server-name: api.external")).ok());
  const absl::Status status = Ask(absl::StrCat(cluster, ", tls-server-name: api.internal"));
  EXPECT_TRUE(status.ok()) << status;
}

}  // namespace
}  // namespace fusionllm::kube
