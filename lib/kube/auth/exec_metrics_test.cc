// Against real programs, which exec_plugin.cc runs.
#include "lib/kube/auth/exec_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/kube/auth/cluster_access.h"
#include "lib/kube/auth/exec_plugin.h"
#include "lib/kube/auth/testing/exec_version.h"
#include "lib/kube/testing/fake_clock.h"
#include "lib/security/certificate_authority.h"

namespace fusionllm::kube {
namespace {

using ::testing::HasSubstr;
using testing::kExecVersion;

constexpr char kToken[] = R"(echo '{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":{"token":"t"}}')";

class ExecMetricsTest : public ::testing::Test {
 protected:
  // A program of these lines of shell.
  ExecConfig Program(const std::string& lines) {
    const std::string path = folder_.path() + "/login";
    std::ofstream(path) << "#!/bin/sh\n" << lines << "\n";
    chmod(path.c_str(), 0755);
    return {.api_version = kExecVersion, .command = path};
  }
  // One that prints a certificate that is good for so long.
  ExecConfig WithCertificate(absl::Duration life) {
    const auto authority = security::CertificateAuthority::Create({.now = clock_.Now()});
    const auto issued = authority->Issue("operator", {.hosts = {}, .validity = life, .now = clock_.Now()});
    const nlohmann::json status = {{"clientCertificateData", issued->certificate_pem}, {"clientKeyData", issued->private_key_pem}};
    const nlohmann::json credential = {{"kind", "ExecCredential"}, {"apiVersion", kExecVersion}, {"status", status}};
    return Program(absl::StrCat("cat <<'END'\n", credential.dump(), "\nEND"));
  }
  std::shared_ptr<CredentialSource> Source(const ExecConfig& exec, absl::Duration timeout = absl::Minutes(1)) {
    return *MakeExecPlugin(exec, {}, clock_, &metrics_, timeout);
  }
  // After one run of it.
  std::string CallsOf(const ExecConfig& exec, absl::Duration timeout = absl::Minutes(1)) {
    (void)Source(exec, timeout)->Get({});
    return registry_.Text();
  }
  static std::string Calls(const char* code, const char* status, int count) {
    return absl::StrCat("rest_client_exec_plugin_call_total{call_status=\"", status, "\",code=\"", code, "\"} ", count, "\n");
  }
  static std::string Life(const char* seconds) { return absl::StrCat("\nrest_client_exec_plugin_ttl_seconds ", seconds, "\n"); }

  base::TempFolder folder_;
  testing::FakeClock clock_;
  metrics::Registry registry_{"test", "1"};
  ExecMetrics metrics_{registry_};
};

TEST_F(ExecMetricsTest, RunsCountByHowTheyEnd) {
  EXPECT_THAT(registry_.Text(), HasSubstr(Calls("0", "no_error", 0)));
  EXPECT_THAT(CallsOf(Program(kToken)), HasSubstr(Calls("0", "no_error", 1)));
  EXPECT_THAT(CallsOf(Program("echo hello")), HasSubstr(Calls("0", "no_error", 2))) << "what it printed is another matter";
  EXPECT_THAT(CallsOf(Program("exit 3")), HasSubstr(Calls("3", "plugin_execution_error", 1)));
  EXPECT_THAT(CallsOf(Program("kill -9 $$")), HasSubstr(Calls("-1", "plugin_execution_error", 1)));
  EXPECT_THAT(CallsOf(Program("tail -f /dev/null"), absl::Milliseconds(200)), HasSubstr(Calls("-1", "plugin_execution_error", 2)));
  EXPECT_THAT(CallsOf({.api_version = kExecVersion, .command = "no-such-login-program"}),
              HasSubstr(Calls("1", "plugin_not_found_error", 1)));
}

TEST_F(ExecMetricsTest, WhatIsKeptOrStoppedIsNoRun) {
  const auto source = Source(Program(kToken));
  ASSERT_TRUE(source->Get({}).ok());
  ASSERT_TRUE(source->Get({}).ok());
  EXPECT_THAT(registry_.Text(), HasSubstr(Calls("0", "no_error", 1)));
  std::stop_source stop;
  stop.request_stop();
  const std::string before = registry_.Text();
  EXPECT_TRUE(absl::IsCancelled(Source(Program("tail -f /dev/null"))->Get(stop.get_token()).status()));
  EXPECT_EQ(registry_.Text(), before);
}

TEST_F(ExecMetricsTest, TheLifeOfACertificateRunsDownAndIsForgottenWithIt) {
  EXPECT_THAT(registry_.Text(), HasSubstr(Life("+Inf")));
  auto source = Source(WithCertificate(absl::Hours(2)));
  ASSERT_TRUE(source->Get({}).ok());
  EXPECT_THAT(registry_.Text(), HasSubstr(Life("7200")));
  clock_.Advance(absl::Hours(3));
  EXPECT_THAT(registry_.Text(), HasSubstr(Life("-3600")));
  source.reset();
  EXPECT_THAT(registry_.Text(), HasSubstr(Life("+Inf")));
}

TEST_F(ExecMetricsTest, ReportsShortestCertificateLife) {
  const auto hours = Source(WithCertificate(absl::Hours(5)));
  ASSERT_TRUE(hours->Get({}).ok());
  const auto token = Source(Program(kToken));
  ASSERT_TRUE(token->Get({}).ok());
  EXPECT_THAT(registry_.Text(), HasSubstr(Life("18000"))) << "a token has no certificate";
  const auto hour = Source(WithCertificate(absl::Hours(1)));
  ASSERT_TRUE(hour->Get({}).ok());
  EXPECT_THAT(registry_.Text(), HasSubstr(Life("3600")));
}

TEST_F(ExecMetricsTest, TheWayToAServerTellsOfItsProgram) {
  ClientConfig config;
  config.server = "https://paris:6443";
  config.exec = Program(kToken);
  const auto access = OpenAccess(config, clock_, {.exec_allowed = {config.exec->command}}, &metrics_);
  ASSERT_TRUE(access.ok()) << access.status();
  ASSERT_TRUE(access->credentials->Get({}).ok());
  EXPECT_THAT(registry_.Text(), HasSubstr(Calls("0", "no_error", 1)));
}

}  // namespace
}  // namespace fusionllm::kube
