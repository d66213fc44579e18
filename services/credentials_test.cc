#include "services/credentials.h"

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/host_port.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/security/certificate_authority.h"
#include "lib/security/credential_files.h"

namespace fusionllm::services {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class CredentialsTest : public ::testing::Test {
 protected:
  void Write(const security::PemCredentials& texts) const {
    const absl::Status status = security::WriteCredentials(folder_, "lab-0", texts);
    ASSERT_TRUE(status.ok()) << status;
  }
  security::PemCredentials Issue(const char* name, const security::IssueOptions& options = {}) const {
    return *security::IssueCredentials(authority_, name, options);
  }
  std::string Error() const { return std::string(LoadCredentials(folder_, "lab-0").status().message()); }

  const security::CertificateAuthority authority_ = *security::CertificateAuthority::Create();
  const base::TempFolder temp_;
  const std::string folder_ = temp_ / "tls";
};

TEST_F(CredentialsTest, WithoutAFolderThereIsNoTls) {
  const auto credentials = LoadCredentials("", "lab-0");
  ASSERT_TRUE(credentials.ok()) << credentials.status();
  EXPECT_FALSE(credentials->secure);
}

TEST_F(CredentialsTest, WithoutTlsOnlyThisMachineIsServedUnlessOneSaysSo) {
  for (const char* own : {"127.0.0.1", "127.1.2.3", "::1", "localhost"}) {
    EXPECT_TRUE(CheckServedPlaintext("", false, base::JoinHostPort(own, "0")).ok()) << own;
  }
  for (const char* host : {"0.0.0.0", "::", "10.0.0.7", "lab.example.org"}) {
    const std::string others = base::JoinHostPort(host, "0");
    EXPECT_EQ(CheckServedPlaintext("", false, others).code(), absl::StatusCode::kInvalidArgument) << others;
    EXPECT_TRUE(CheckServedPlaintext("", true, others).ok()) << others;
    EXPECT_TRUE(CheckServedPlaintext("tls", false, others).ok()) << others;
  }
}

TEST_F(CredentialsTest, MembersOfOneJobAgreeOnItsHash) {
  Write(Issue("lab-0"));
  ASSERT_TRUE(security::WriteCredentials(folder_, "broker", Issue("broker")).ok());
  const auto own = LoadCredentials(folder_, "lab-0"), broker = LoadCredentials(folder_, "broker");
  ASSERT_TRUE(own.ok()) << own.status();
  ASSERT_TRUE(broker.ok()) << broker.status();
  EXPECT_TRUE(own->secure && own->channel != nullptr && own->server != nullptr && own->enrolling_server != nullptr);
  EXPECT_EQ(own->job_hash, broker->job_hash);
  Write(*security::IssueCredentials(*security::CertificateAuthority::Create(), "lab-0"));
  EXPECT_NE(LoadCredentials(folder_, "lab-0")->job_hash, broker->job_hash);
}

// In words, and here: a handshake that fails later says "failed to connect".
TEST_F(CredentialsTest, CertificatesThatCannotServeAreRefusedByFile) {
  EXPECT_THAT(Error(), HasSubstr("ca.pem"));
  Write(Issue("lab-1"));
  EXPECT_THAT(Error(), AllOf(HasSubstr("lab-0.pem"), HasSubstr("'lab-1'"), HasSubstr("not to 'lab-0'")));
  Write(Issue("lab-0", {.validity = absl::Seconds(1), .now = absl::Now() - absl::Minutes(1)}));
  EXPECT_THAT(Error(), AllOf(HasSubstr("lab-0.pem"), HasSubstr("expired")));
  security::PemCredentials mixed = Issue("lab-0");
  mixed.private_key_pem = Issue("lab-0").private_key_pem;
  Write(mixed);
  EXPECT_THAT(Error(), HasSubstr("lab-0.key"));
  mixed = Issue("lab-0");
  mixed.ca_pem = security::CertificateAuthority::Create()->certificate_pem();
  Write(mixed);
  EXPECT_THAT(Error(), HasSubstr("lab-0.pem"));
}

}  // namespace
}  // namespace fusionllm::services
