#include "services/broker/enrollment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/base/testing/temp_folder.h"
#include "lib/security/credential_files.h"
#include "lib/security/private_file.h"

namespace fusionllm::services {
namespace {

using ::testing::HasSubstr;

class EnrollmentTest : public ::testing::Test {
 protected:
  EnrollmentTest() {
    const auto authority = security::CertificateAuthority::Create();
    EXPECT_TRUE(authority.ok() && authority->Save(folder_.path()).ok());
    token_ = *security::MakeJoinToken(*security::MakeJoinSecret(), authority->certificate_pem());
    other_token_ = *security::MakeJoinToken(*security::MakeJoinSecret(), authority->certificate_pem());
    EXPECT_TRUE(security::WritePrivateFile(folder_ / "token", token_).ok());
    auto loaded = Enrollment::Load(folder_.path(), {"paris-0"});
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    enrollment_ = *std::move(loaded);
  }

  absl::StatusOr<v1::EnrollResponse> Enroll(const std::string& token, const std::string& name) {
    v1::EnrollRequest request;
    request.set_token(token);
    request.set_name(name);
    return enrollment_->Enroll(request, "ipv4:10.0.0.7:51234");
  }

  base::TempFolder folder_;
  std::string token_, other_token_;
  std::unique_ptr<Enrollment> enrollment_;
};

TEST_F(EnrollmentTest, ATokenBuysCredentialsThatHold) {
  const auto response = Enroll(token_, "laptop");
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->name(), "laptop");
  const security::CredentialTexts texts = {response->ca_certificate_pem(), response->certificate_pem(), response->private_key_pem()};
  EXPECT_TRUE(security::CheckCredentials(texts, "laptop").ok());
}

TEST_F(EnrollmentTest, NamesAreMadeUnique) {
  EXPECT_EQ(Enroll(token_, "laptop")->name(), "laptop");
  EXPECT_EQ(Enroll(token_, "laptop")->name(), "laptop-2");
  EXPECT_EQ(Enroll(token_, "laptop")->name(), "laptop-3");
  EXPECT_EQ(Enroll(token_, "broker")->name(), "broker-2") << "no executor can pass for a service";
  EXPECT_EQ(Enroll(token_, "paris-0")->name(), "paris-0-2");
  EXPECT_EQ(Enroll(token_, "")->name(), "executor");
}

TEST_F(EnrollmentTest, AnotherTokenBuysNothing) {
  for (const std::string& token : {other_token_, std::string("fj1."), std::string()}) {
    EXPECT_EQ(Enroll(token, "laptop").status().code(), absl::StatusCode::kUnauthenticated);
  }
  EXPECT_EQ(Enroll(token_, "laptop")->name(), "laptop") << "the failed tries took no name";
}

TEST_F(EnrollmentTest, ABadNameIsRefused) {
  EXPECT_EQ(Enroll(token_, "a/../b").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Enroll(token_, std::string(1000, 'a')).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(EnrollmentTest, AMissingTokenFileIsNamed) {
  std::filesystem::remove(folder_ / "token");
  const auto loaded = Enrollment::Load(folder_.path(), {});
  ASSERT_FALSE(loaded.ok());
  EXPECT_THAT(std::string(loaded.status().message()), HasSubstr("token"));
}

TEST(HostOfPeerTest, KnowsBothFamilies) {
  EXPECT_EQ(HostOfPeer("ipv4:10.0.0.7:51234"), "10.0.0.7");
  EXPECT_EQ(HostOfPeer("ipv6:%5B2001:db8::1%5D:51234"), "2001:db8::1");
  EXPECT_EQ(HostOfPeer("ipv6:[2001:db8::2]:51234"), "2001:db8::2");
  EXPECT_EQ(HostOfPeer("unix:/tmp/x"), "");
}

}  // namespace
}  // namespace fusionllm::services
