#include "lib/kube/auth/cluster_access.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "lib/base/testing/temp_folder.h"
#include "lib/kube/testing/fake_clock.h"
#include "lib/kube/testing/raw_server.h"
#include "lib/security/certificate_authority.h"

namespace fusionllm::kube {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ClientConfig Good() {
  ClientConfig config;
  config.server = "https://10.0.0.1:6443";
  config.ca.data = "CA";
  config.token = "abc";
  return config;
}

std::vector<std::string> Reasons(const ClientConfig& config, const AccessOptions& options = {}) {
  std::vector<std::string> reasons;
  for (const ConfigRefusal& refusal : CheckUntrustedConfig(config, options)) reasons.push_back(refusal.reason);
  return reasons;
}

TEST(CheckUntrustedConfig, DataInlineIsAllowed) {
  ClientConfig config = Good();
  config.certificate.data = "C";
  config.key.data = "K";
  EXPECT_THAT(Reasons(config), ElementsAre());
  config.server = "https://[2001:db8::1]:6443/k8s/clusters/c";
  EXPECT_THAT(Reasons(config), ElementsAre());
}

TEST(CheckUntrustedConfig, WhatReachesIntoOurMachineIsNot) {
  struct Case {
    const char* reason;
    void (*change)(ClientConfig&);
  };
  const Case cases[] = {
      {"TokenFileNotAllowed", [](ClientConfig& c) { c.token_file = "/var/run/secrets/kubernetes.io/serviceaccount/token"; }},
      {"CertificateAuthorityFileNotAllowed", [](ClientConfig& c) { c.ca = {.path = "/etc/ca"}; }},
      {"ClientCertificateFileNotAllowed", [](ClientConfig& c) { c.key = {.path = "/etc/key"}; }},
      {"ClientCertificateFileNotAllowed", [](ClientConfig& c) { c.certificate = {.path = "/etc/certificate"}; }},
      {"InsecureSkipVerifyNotAllowed", [](ClientConfig& c) { c.insecure = true; }},
      {"BasicAuthNotAllowed", [](ClientConfig& c) { c.basic_auth = true; }},
      {"AuthProviderNotAllowed", [](ClientConfig& c) { c.auth_provider = true; }},
      {"ImpersonationNotAllowed", [](ClientConfig& c) { c.impersonation = true; }},
      {"ExecNotAllowed", [](ClientConfig& c) { c.exec = {.api_version = "v1", .command = "rm"}; }},
      {"ServerNotAllowed", [](ClientConfig& c) { c.server = "http://10.0.0.1"; }},
      {"ServerNotAllowed", [](ClientConfig& c) { c.server = "https://under_score"; }},
      {"ServerNotAllowed", [](ClientConfig& c) { c.server = "unix:///var/run/docker.sock"; }},
      {"ServerNotAllowed", [](ClientConfig& c) { c.server = ""; }},
  };
  for (const Case& one : cases) {
    ClientConfig config = Good();
    one.change(config);
    EXPECT_THAT(Reasons(config), ElementsAre(one.reason)) << one.reason << " " << config.server;
  }
}

TEST(CheckUntrustedConfig, ExecIsAllowedByItsWholeCommand) {
  ClientConfig config = Good();
  config.exec = {.api_version = "client.authentication.k8s.io/v1", .command = "aws"};
  EXPECT_THAT(Reasons(config, {.exec_allowed = {"aws"}}), ElementsAre());
  config.exec->command = "/tmp/aws";
  EXPECT_THAT(Reasons(config, {.exec_allowed = {"aws"}}), ElementsAre("ExecNotAllowed"));
}

TEST(CheckUntrustedConfig, ExecIsAllowedByItsArgumentsAndVariablesToo) {
  ClientConfig config = Good();
  config.exec = {.api_version = "client.authentication.k8s.io/v1", .command = "aws", .args = {"eks", "get-token"}};
  const AccessOptions rules{.exec_allowed = {"aws"}, .exec_rules = ExecRules{.calls = {{"aws", {"eks", "get-token"}}}}};
  EXPECT_THAT(Reasons(config, rules), ElementsAre());
  config.exec->args.push_back("--debug");
  EXPECT_THAT(Reasons(config, rules), ElementsAre("ExecNotAllowed"));
  config.exec->args.pop_back();
  config.exec->env = {{"LD_PRELOAD", "/tmp/x.so"}};
  EXPECT_THAT(Reasons(config, rules), ElementsAre("ExecNotAllowed"));
  testing::FakeClock clock;
  EXPECT_EQ(OpenAccess(config, clock, rules).status().code(), absl::StatusCode::kInvalidArgument) << "nor is it run";
}

class OpenAccessTest : public ::testing::Test {
 protected:
  absl::Status Open(const ClientConfig& config) { return OpenAccess(config, clock_).status(); }
  testing::FakeClock clock_;
};

TEST_F(OpenAccessTest, OpensWithoutConnecting) {
  ClientConfig config = Good();
  const auto access = OpenAccess(config, clock_);
  ASSERT_TRUE(access.ok()) << access.status();
  EXPECT_EQ(access->server, "10.0.0.1:6443");
  EXPECT_EQ(access->ns, "default");
  EXPECT_EQ((*access->credentials->Get({}))->token, "abc");
}

TEST_F(OpenAccessTest, WhatIsWrongIsSaidWithTheEntry) {
  const struct {
    const char* said;
    void (*change)(ClientConfig&);
  } cases[] = {
      {"m.yaml: user \"u\": a client certificate needs its key, and a key its certificate",
       [](ClientConfig& c) { c.certificate.data = "PEM"; }},
      {"m.yaml: user \"u\": auth-provider is not supported: use exec, or a token", [](ClientConfig& c) { c.auth_provider = true; }},
      {"m.yaml: user \"u\": exec would run login here, which is not among the programs allowed",
       [](ClientConfig& c) { c.exec = ExecConfig{.command = "login"}; }},
      {"m.yaml: cluster \"c\": the server address \"10.0.0.1\" must begin with https:// or http://",
       [](ClientConfig& c) { c.server = "10.0.0.1"; }},
      {"m.yaml: cluster \"c\": a token is not sent over plain http: use https", [](ClientConfig& c) { c.server = "http://c"; }},
  };
  for (const auto& one : cases) {
    ClientConfig config = Good();
    config.cluster_entry = "m.yaml: cluster \"c\"";
    config.user_entry = "m.yaml: user \"u\"";
    one.change(config);
    EXPECT_EQ(Open(config).message(), one.said);
  }
}

// As the kubelet renews that of a Pod.
TEST_F(OpenAccessTest, ATokenFileGoesBeforeATokenAndIsReadAgain) {
  const base::TempFolder folder;
  ClientConfig config = Good();
  config.token_file = folder.path() + "/token";
  std::ofstream(config.token_file) << "one\n";
  const auto access = OpenAccess(config, clock_);
  ASSERT_TRUE(access.ok()) << access.status();
  const auto token = [&] { return (*access->credentials->Get({}))->token; };
  EXPECT_EQ(token(), "one");
  std::ofstream(config.token_file) << "two\n";
  clock_.Advance(absl::Seconds(51));
  EXPECT_EQ(token(), "two");
}

TEST_F(OpenAccessTest, AnAuthoritysFileThatIsRenewedIsTrustedByTheNextCall) {
  const security::CertificateAuthority old = *security::CertificateAuthority::Create(), now = *security::CertificateAuthority::Create();
  const security::IssuedCertificate identity = *now.Issue("api", {});
  const testing::RawServer server(
      [](testing::RawConnection& connection) {
        while (!connection.ReadRequest().empty()) connection.Answer(200, "hello");
      },
      {identity.certificate_pem, identity.private_key_pem, ""});
  const base::TempFolder folder;
  ClientConfig config;
  config.server = server.Url();
  config.ca.path = folder.Write("ca.crt", old.certificate_pem());
  const auto access = OpenAccess(config, clock_);
  ASSERT_TRUE(access.ok()) << access.status();
  const auto ask = [&] { return access->transport->Send({.target = "/"}, {}, {}); };
  EXPECT_EQ(ask().status().code(), absl::StatusCode::kFailedPrecondition) << "a server of another authority";
  (void)folder.Write("ca.crt", now.certificate_pem());
  clock_.Advance(absl::Minutes(1));
  const auto answer = ask();
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->body, "hello");
}

TEST_F(OpenAccessTest, WhatContradictsItselfOrIsNotSupportedIsRefused) {
  const auto refused = [&](const std::function<void(ClientConfig&)>& change, const char* message) {
    ClientConfig config = Good();
    change(config);
    const absl::Status status = Open(config);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << message;
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
  };
  // Silently left out, each would make us somebody else.
  refused([](ClientConfig& c) { c.basic_auth = true; }, "password");
  refused([](ClientConfig& c) { c.auth_provider = true; }, "auth-provider");
  refused([](ClientConfig& c) { c.impersonation = true; }, "impersonation");
  refused([](ClientConfig& c) { c.insecure = true; }, "contradict");
  refused([](ClientConfig& c) { c.certificate.data = "C"; }, "its key");
  refused([](ClientConfig& c) { c.exec = {.api_version = "client.authentication.k8s.io/v1", .command = "rm"}; }, "exec would run rm");
  refused([](ClientConfig& c) { c.server = "http://10.0.0.1:8080"; }, "plain http");
  refused([](ClientConfig& c) { c.server = "10.0.0.1"; }, "must begin with https://");
}

class InClusterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    unsetenv("KUBERNETES_SERVICE_HOST");
    unsetenv("KUBERNETES_SERVICE_PORT");
  }
  void TearDown() override { SetUp(); }
  void EnterPod(const char* host) {
    setenv("KUBERNETES_SERVICE_HOST", host, 1);
    setenv("KUBERNETES_SERVICE_PORT", "443", 1);
    std::filesystem::create_directories(account_);
    std::ofstream(account_ + "/token") << "abc";
    std::ofstream(account_ + "/namespace") << "fusion-system\n";
  }
  base::TempFolder folder_;
  const std::string account_ = folder_.path() + "/var/run/secrets/kubernetes.io/serviceaccount";
};

TEST_F(InClusterTest, TakesWhatTheKubeletMounts) {
  EnterPod("10.96.0.1");
  const auto config = InClusterConfig(folder_.path());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->server, "https://10.96.0.1:443");
  EXPECT_EQ(config->token_file, account_ + "/token");
  EXPECT_EQ(config->token, "");
  EXPECT_EQ(config->ca.path, account_ + "/ca.crt");
  EXPECT_EQ(config->ns, "fusion-system");
}

TEST_F(InClusterTest, Ipv6GetsItsBrackets) {
  EnterPod("fd00::1");
  EXPECT_EQ(InClusterConfig(folder_.path())->server, "https://[fd00::1]:443");
}

TEST_F(InClusterTest, OutsideOfAPodThereIsNone) { EXPECT_TRUE(absl::IsNotFound(InClusterConfig(folder_.path()).status())); }

}  // namespace
}  // namespace fusionllm::kube
