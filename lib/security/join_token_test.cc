#include "lib/security/join_token.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "lib/security/certificate_authority.h"

namespace fusionllm::security {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class JoinTokenTest : public ::testing::Test {
 protected:
  CertificateAuthority authority_ = *CertificateAuthority::Create();
  JoinSecret secret_ = *MakeJoinSecret();
  std::string token_ = *MakeJoinToken(secret_, authority_.certificate_pem());

  std::string Complaint(const std::string& text) const {
    const absl::StatusOr<JoinToken> parsed = ParseJoinToken(text);
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << text.substr(0, 100);
    EXPECT_LT(parsed.status().message().size(), 300u) << "the token must not appear in logs";
    return std::string(parsed.status().message());
  }
};

TEST_F(JoinTokenTest, CarriesTheSecretAndTheAuthority) {
  const absl::StatusOr<JoinToken> parsed = ParseJoinToken(token_);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_TRUE(SameSecret(parsed->secret, secret_));
  EXPECT_EQ(parsed->ca_pem, authority_.certificate_pem());
}

TEST_F(JoinTokenTest, IsOneWordThatFitsOnACommandLine) {
  EXPECT_EQ(token_.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_."), std::string::npos);
  EXPECT_LT(token_.size(), 1000u);
}

TEST_F(JoinTokenTest, WhiteSpaceAroundATokenIsIgnored) { EXPECT_TRUE(ParseJoinToken(absl::StrCat(" \t", token_, "\r\n")).ok()); }

TEST_F(JoinTokenTest, SecretsAreNewEachTimeAndComparedWhole) {
  std::set<JoinSecret> secrets;
  for (int i = 0; i < 64; ++i) secrets.insert(*MakeJoinSecret());
  EXPECT_EQ(secrets.size(), 64u);
  for (size_t i = 0; i < kJoinSecretBytes; ++i) {
    JoinSecret other = secret_;
    other[i] ^= 1;
    EXPECT_FALSE(SameSecret(secret_, other)) << "byte " << i;
  }
  EXPECT_TRUE(SameSecret(secret_, JoinSecret(secret_)));
}

TEST_F(JoinTokenTest, EveryTokenCutShortIsRefused) {
  for (size_t size = 0; size < token_.size(); ++size) {
    const std::string complaint = Complaint(token_.substr(0, size));
    if (size == 0) {
      EXPECT_THAT(complaint, HasSubstr("is empty"));
    } else if (size < 4) {
      EXPECT_THAT(complaint, HasSubstr("this is no join token: one begins with 'fj1.'"));
    } else if (size > 60) {
      EXPECT_THAT(complaint, HasSubstr("cut short")) << size;
    }
  }
}

TEST_F(JoinTokenTest, DistinguishesOtherVersionsFromOtherTexts) {
  EXPECT_THAT(Complaint("fj2." + token_.substr(4)), HasSubstr("has version 2, this build reads version 1"));
  EXPECT_THAT(Complaint("fj10." + token_.substr(4)), HasSubstr("has version 10"));
  EXPECT_THAT(Complaint("FJ1." + token_.substr(4)), HasSubstr("this is no join token"));
  EXPECT_THAT(Complaint("fj." + token_.substr(4)), HasSubstr("this is no join token"));
  EXPECT_THAT(Complaint("my laptop"), HasSubstr("this is no join token"));
}

TEST_F(JoinTokenTest, AStrayCharacterIsNamedWithItsPlace) {
  std::string broken = token_;
  broken[9] = '+';
  EXPECT_THAT(Complaint(broken), HasSubstr("character 10 of the join token ('+')"));
  EXPECT_THAT(Complaint(absl::StrCat(token_.substr(0, 40), "\n", token_.substr(40))), HasSubstr("character 41 of the join token ('\\n')"));
  EXPECT_THAT(Complaint(token_ + "="), HasSubstr("('=')"));
}

TEST_F(JoinTokenTest, TextAfterTheEndIsRefused) {
  const std::string bytes = [&] {
    std::string decoded;
    EXPECT_TRUE(absl::WebSafeBase64Unescape(token_.substr(4), &decoded));
    return decoded;
  }();
  EXPECT_THAT(Complaint("fj1." + absl::WebSafeBase64Escape(bytes + "abc")), HasSubstr("3 bytes follow its certificate"));
}

TEST_F(JoinTokenTest, ADamagedCertificateIsNoticed) {
  std::string decoded;
  ASSERT_TRUE(absl::WebSafeBase64Unescape(token_.substr(4), &decoded));
  for (size_t i = kJoinSecretBytes; i < decoded.size(); ++i) {
    std::string damaged = decoded;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x10);
    EXPECT_THAT(Complaint("fj1." + absl::WebSafeBase64Escape(damaged)), HasSubstr("join token")) << "byte " << i;
  }
}

TEST_F(JoinTokenTest, SizesAreLimited) {
  EXPECT_THAT(Complaint(std::string(kMaxJoinTokenBytes + 1, 'A')), HasSubstr("has 16385 characters, more than the 16384"));
  EXPECT_THAT(Complaint("fj1." + std::string(kMaxJoinTokenBytes - 4, 'A')), Not(HasSubstr("more than")));
}

TEST_F(JoinTokenTest, OnlyTheCertificateOfACaMakesAToken) {
  const auto complaint = [&](const std::string& pem) {
    const absl::StatusOr<std::string> token = MakeJoinToken(secret_, pem);
    EXPECT_EQ(token.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(token.status().message());
  };
  EXPECT_THAT(complaint(""), HasSubstr("the CA's certificate is empty"));
  EXPECT_THAT(complaint(authority_.certificate_pem() + authority_.certificate_pem()), HasSubstr("carries one CA certificate, not 2"));
  EXPECT_THAT(complaint(authority_.Issue("paris-0")->certificate_pem), HasSubstr("is not the self-signed one of a CA"));
}

}  // namespace
}  // namespace fusionllm::security
