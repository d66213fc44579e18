#include "lib/security/renewal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <string>

#include "lib/base/testing/temp_folder.h"
#include "lib/security/credential_files.h"
#include "lib/security/pem.h"

namespace fusionllm::security {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class RenewalTest : public ::testing::Test {
 protected:
  void Write(const char* name, absl::Time now) const {
    ASSERT_TRUE(WriteCredentials(folder_, name, *IssueCredentials(authority_, name, {.now = now})).ok());
  }
  std::string File(const char* name) const { return base::ReadWholeFile(folder_ + "/" + name); }
  absl::Status Check(const char* name, absl::Time now) const {
    return CheckCredentials({File("ca.pem"), File((std::string(name) + ".pem").c_str()), File((std::string(name) + ".key").c_str())}, name,
                            now);
  }

  const absl::Time start_ = absl::FromUnixSeconds(1'800'000'000);
  const CertificateAuthority authority_ = *CertificateAuthority::Create({.now = start_});
  const base::TempFolder temp_;
  const std::string folder_ = temp_ / "tls";
};

TEST_F(RenewalTest, IsNeededWhenLessThanAThirdOfItsLifeIsLeft) {
  const std::string pem = authority_.Issue("a", {.validity = absl::Hours(30), .now = start_ + absl::Hours(2)})->certificate_pem;
  EXPECT_EQ(*NeedsRenewal(pem, start_ + absl::Hours(2)), false);
  EXPECT_EQ(*NeedsRenewal(pem, start_ + absl::Hours(21)), false);
  EXPECT_EQ(*NeedsRenewal(pem, start_ + absl::Hours(22)), true);
  EXPECT_EQ(*NeedsRenewal(pem, start_ + absl::Hours(500)), true) << "expired";
  EXPECT_EQ(NeedsRenewal("x", start_).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(RenewalTest, ARunOfManyMonthsHasValidCertificatesAllTheTime) {
  for (const char* name : {"broker", "lab-0"}) Write(name, start_);
  const std::string key = File("lab-0.key");
  int changes = 0;
  std::string before = File("lab-0.pem");
  for (absl::Time now = start_; now < start_ + 10 * kCertificateValidity; now += absl::Hours(24 * 10)) {
    ASSERT_TRUE(RenewFolder(authority_, folder_, now).ok());
    for (const char* name : {"broker", "lab-0"}) ASSERT_TRUE(Check(name, now).ok()) << name << " " << now;
    if (File("lab-0.pem") != before) ++changes;
    before = File("lab-0.pem");
  }
  EXPECT_EQ(changes, 14) << "every 60 days of 900";
  EXPECT_EQ(File("lab-0.key"), key);
}

TEST_F(RenewalTest, RenewsOthersWhenOneFails) {
  for (const char* name : {"broker", "lab-0", "lab-1"}) Write(name, start_);
  const CertificateAuthority stranger = *CertificateAuthority::Create({.now = start_});
  temp_.Write("tls/lab-0.pem", stranger.Issue("lab-0", {.now = start_})->certificate_pem);
  const absl::Time late = start_ + kCertificateValidity - absl::Hours(1);
  const absl::Status status = RenewFolder(authority_, folder_, late);
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("lab-0.pem"), HasSubstr("not issued by this job's CA")));
  for (const char* name : {"broker", "lab-1"}) EXPECT_TRUE(Check(name, late + absl::Hours(24)).ok()) << name;
}

TEST_F(RenewalTest, IgnoresFilesThatAreNoProcessCertificates) {
  Write("broker", start_);
  const std::string others = temp_.Write("tls/chain.pem", "somebody's");
  ASSERT_TRUE(RenewFolder(authority_, folder_, start_ + kCertificateValidity).ok());
  EXPECT_EQ(base::ReadWholeFile(others), "somebody's");
  EXPECT_EQ(File("ca.pem"), authority_.certificate_pem());
}

TEST_F(RenewalTest, ReportsMissingFolder) {
  EXPECT_THAT(std::string(RenewFolder(authority_, temp_ / "gone", start_).message()), HasSubstr("gone"));
}

TEST(RenewalThreadTest, TriesAgainAfterAFailureAndEndsAtOnce) {
  std::promise<void> third;
  std::atomic<int> calls = 0;
  {
    const RenewalThread thread(
        "the certificate",
        [&]() -> absl::Status {
          if (++calls == 3) third.set_value();
          return absl::UnavailableError("nobody there");
        },
        absl::Milliseconds(1));
    third.get_future().wait();
  }
  const int before = calls;
  std::promise<void> first;
  {
    const RenewalThread slow("the certificate", [&] { return first.set_value(), absl::OkStatus(); });
    first.get_future().wait();
  }
  EXPECT_EQ(calls, before) << "nobody calls any more";
}

}  // namespace
}  // namespace fusionllm::security
