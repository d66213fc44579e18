#include "services/broker/enrollment.h"

#include <filesystem>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/security/credential_files.h"
#include "proto/fusionllm/v1/broker.pb.h"

namespace fusionllm::services {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class EnrollmentTest : public ::testing::Test {
 protected:
  EnrollmentTest() {
    const auto authority = *security::CertificateAuthority::Create();
    EXPECT_TRUE(authority.Save(folder_ / "tls").ok());
    token_ = *security::MakeJoinToken(*security::MakeJoinSecret(), authority.certificate_pem());
    wrong_ = *security::MakeJoinToken(*security::MakeJoinSecret(), authority.certificate_pem());
    folder_.Write("tls/token", token_);
    enrollment_ = std::make_unique<Enrollment>(*Enrollment::Load(folder_ / "tls", {"local-0"}, "the job"));
  }

  absl::StatusOr<v1::EnrollResponse> Enroll(const std::string& name, const std::string& token) {
    v1::EnrollRequest request;
    request.set_name(name);
    request.set_token(token);
    request.set_public_key_pem(key_.public_key_pem);
    return enrollment_->Enroll(
        request, [this](const std::string& asked) { return asked == connected_; }, now_);
  }

  base::TempFolder folder_;
  security::PemKeyPair key_ = *security::GenerateKeyPair();
  std::string token_, wrong_, connected_;
  absl::Time now_ = absl::Now();
  std::unique_ptr<Enrollment> enrollment_;
};

TEST_F(EnrollmentTest, TheTokenBuysACertificateOfTheJobsAuthority) {
  const auto response = Enroll("lab-3", token_);
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->name(), "lab-3");
  EXPECT_EQ(response->job_document(), "the job");
  EXPECT_TRUE(
      security::CheckCredentials({response->ca_certificate_pem(), response->certificate_pem(), key_.private_key_pem}, "lab-3").ok());
}

TEST_F(EnrollmentTest, WithoutAKeyThatCanBeSignedNoNameIsTaken) {
  const security::PemKeyPair good = key_;
  for (const std::string& bad : {std::string(), std::string("x"), good.private_key_pem}) {
    key_.public_key_pem = bad;
    const absl::Status status = Enroll("lab-3", token_).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("public key"));
  }
  key_ = good;
  EXPECT_TRUE(Enroll("lab-3", token_).ok());
}

TEST_F(EnrollmentTest, AWrongTokenBuysNothingAndIsNotRepeated) {
  const auto response = Enroll("lab-3", wrong_);
  EXPECT_EQ(response.status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(response.status().message()), Not(HasSubstr(wrong_)));
  EXPECT_EQ(Enroll("lab-3", "nonsense").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Enroll("lab-3", "").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(EnrollmentTest, WrongTokensAreCountedByTheMinuteAndRightOnesAreNot) {
  for (int i = 0; i < Enrollment::kWrongTokensPerMinute; ++i) {
    ASSERT_EQ(Enroll("x", wrong_).status().code(), absl::StatusCode::kPermissionDenied) << i;
  }
  EXPECT_EQ(Enroll("x", wrong_).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(Enroll("honest", token_).ok());
  now_ += absl::Minutes(1);
  EXPECT_EQ(Enroll("x", wrong_).status().code(), absl::StatusCode::kPermissionDenied);
}

TEST_F(EnrollmentTest, NamesInUseAndNamesOfServicesAreRefused) {
  ASSERT_TRUE(Enroll("lab-3", token_).ok());
  for (const char* name : {"lab-3", "local-0", "broker", "scheduler", "client", "LAB-3", "Local-0", "Broker", "SCHEDULER", "cLient"}) {
    const absl::Status status = Enroll(name, token_).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists) << name;
    EXPECT_THAT(std::string(status.message()), HasSubstr(name));
  }
  EXPECT_EQ(Enroll("ca", token_).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Enroll("../etc", token_).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(EnrollmentTest, ANameIsFreeAgainWhenItsExecutorHasGone) {
  ASSERT_TRUE(Enroll("lab-3", token_).ok());
  now_ += Enrollment::kNameHoldTime;
  connected_ = "lab-3";
  EXPECT_EQ(Enroll("lab-3", token_).status().code(), absl::StatusCode::kAlreadyExists);
  connected_ = "";
  EXPECT_TRUE(Enroll("lab-3", token_).ok());
}

TEST_F(EnrollmentTest, ANameThatIsStillTakenIsRefusedWithWhenItIsFree) {
  ASSERT_TRUE(Enroll("lab-3", token_).ok());
  now_ += absl::Seconds(10);
  EXPECT_THAT(std::string(Enroll("lab-3", token_).status().message()), HasSubstr("10 s ago, for which it is kept another 20 s; try again"));
  now_ += absl::Milliseconds(19'500);
  EXPECT_THAT(std::string(Enroll("lab-3", token_).status().message()), HasSubstr("another 1 s"));
  connected_ = "lab-3";
  EXPECT_THAT(std::string(Enroll("lab-3", token_).status().message()), HasSubstr("free within a minute"));
}

// A supervisor that restarts `join` need not wait half a minute.
TEST_F(EnrollmentTest, NameOfADisconnectedExecutorIsFreeAgain) {
  ASSERT_TRUE(Enroll("lab-3", token_).ok());
  enrollment_->OnConnected("lab-3");
  enrollment_->OnConnected("never-enrolled");
  EXPECT_THAT(std::string(Enroll("lab-3", token_).status().message()), HasSubstr("it is kept another 5 s"));
  now_ += Enrollment::kReenrollAfter;
  connected_ = "lab-3";
  EXPECT_EQ(Enroll("lab-3", token_).status().code(), absl::StatusCode::kAlreadyExists);
  connected_ = "";
  EXPECT_TRUE(Enroll("lab-3", token_).ok());
  EXPECT_THAT(std::string(Enroll("lab-3", token_).status().message()), HasSubstr("it is kept another 30 s")) << "for the new one";
}

TEST_F(EnrollmentTest, AnExecutorWithoutANameGetsOne) {
  EXPECT_EQ(Enroll("", token_)->name(), "joined-0");
  EXPECT_EQ(Enroll("", token_)->name(), "joined-1");
  connected_ = "joined-2";  // enrolled at a broker that was replaced since
  EXPECT_EQ(Enroll("", token_)->name(), "joined-3");
}

TEST_F(EnrollmentTest, CertificatesRunOut) {
  for (int i = 0; i < Enrollment::kEnrolledMax; ++i) ASSERT_TRUE(Enroll("", token_).ok()) << i;
  EXPECT_EQ(Enroll("", token_).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(EnrollmentTest, PlacesOfExecutorsThatAreLongGoneAreGivenBackButNotOfThoseThatAreThere) {
  for (int i = 0; i < Enrollment::kEnrolledMax; ++i) ASSERT_TRUE(Enroll("", token_).ok()) << i;
  connected_ = "joined-0";
  now_ += Enrollment::kEnrollmentExpiry;
  for (int i = 0; i < Enrollment::kEnrolledMax - 1; ++i) ASSERT_TRUE(Enroll("", token_).ok()) << i;
  EXPECT_EQ(Enroll("", token_).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Enroll("joined-0", token_).status().code(), absl::StatusCode::kAlreadyExists);
}

TEST_F(EnrollmentTest, AMissingOrDamagedTokenFileIsNamed) {
  folder_.Write("tls/token", "fj1.x");
  EXPECT_THAT(std::string(Enrollment::Load(folder_ / "tls", {}, "").status().message()), HasSubstr("tls/token"));
  std::filesystem::remove(folder_ / "tls/token");
  EXPECT_EQ(Enrollment::Load(folder_ / "tls", {}, "").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace fusionllm::services
