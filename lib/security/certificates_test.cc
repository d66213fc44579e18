#include "lib/security/certificates.h"

#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/security/join_token.h"

namespace fusionllm::security {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

CertificateAndKey Authority(const char* job = "job") { return *MakeAuthority(job); }

TEST(Certificates, ALeafHoldsItsNamesItsLifetimeAndItsAuthority) {
  const CertificateAndKey authority = Authority();
  const auto leaf = IssueCertificate(authority, "paris-0", std::chrono::hours(2));
  ASSERT_TRUE(leaf.ok()) << leaf.status();
  const auto info = ReadCertificate(leaf->certificate_pem);
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->common_name, "paris-0");
  EXPECT_THAT(info->dns_names, ElementsAre("paris-0", "localhost"));
  const auto now = std::chrono::system_clock::now();
  EXPECT_LT(info->not_before, now);
  EXPECT_GT(info->not_after, now + std::chrono::minutes(119));
  EXPECT_LT(info->not_after, now + std::chrono::minutes(121));
  EXPECT_TRUE(CheckCertificate(leaf->certificate_pem, authority.certificate_pem, "paris-0").ok());
  EXPECT_TRUE(CheckKey(*leaf).ok());
}

struct Refusal {
  const char* name;
  std::string certificate;
  std::string expected_name;
  const char* word;
};

TEST(Certificates, RefusalsSayWhy) {
  const CertificateAndKey authority = Authority(), other = Authority();
  const Refusal cases[] = {
      {"expired", IssueCertificate(authority, "a", std::chrono::seconds(-5))->certificate_pem, "", "expired"},
      {"another authority of the same name", IssueCertificate(other, "a")->certificate_pem, "", "does not hold"},
      {"another name", IssueCertificate(authority, "a")->certificate_pem, "b", "not for b"},
  };
  for (const Refusal& refusal : cases) {
    SCOPED_TRACE(refusal.name);
    const absl::Status status = CheckCertificate(refusal.certificate, authority.certificate_pem, refusal.expected_name);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnauthenticated);
    EXPECT_THAT(std::string(status.message()), HasSubstr(refusal.word));
  }
}

TEST(Certificates, ALeafCannotActAsAnAuthority) {
  const CertificateAndKey authority = Authority();
  const CertificateAndKey leaf = *IssueCertificate(authority, "a");
  const auto forged = IssueCertificate(leaf, "b");
  ASSERT_TRUE(forged.ok());
  EXPECT_FALSE(CheckCertificate(forged->certificate_pem, leaf.certificate_pem).ok());
  EXPECT_FALSE(CheckCertificate(forged->certificate_pem, authority.certificate_pem).ok());
}

TEST(Certificates, BadInputIsAnErrorAndNotACrash) {
  const CertificateAndKey authority = Authority();
  for (const char* name : {"", "a b", "a,DNS:evil", "a\n", "ü"}) {
    EXPECT_EQ(IssueCertificate(authority, name).status().code(), absl::StatusCode::kInvalidArgument) << name;
  }
  EXPECT_FALSE(IssueCertificate(authority, std::string(65, 'a')).ok());
  EXPECT_FALSE(IssueCertificate(authority, "a", std::chrono::hours(24 * 365 * 100)).ok());
  EXPECT_FALSE(IssueCertificate({authority.certificate_pem, Authority().key_pem}, "a").ok());
  EXPECT_FALSE(IssueCertificate({"x", "y"}, "a").ok());
  EXPECT_FALSE(ReadCertificate("").ok());
  EXPECT_FALSE(ReadCertificate(std::string(1 << 20, 'x')).ok());
  EXPECT_FALSE(CheckKey({authority.certificate_pem, Authority().key_pem}).ok());
}

TEST(PrivateFile, OnlyItsOwnerCanReadItAlsoWhenItReplacesAnother) {
  std::string pattern = std::filesystem::temp_directory_path() / "fusionllm-security-XXXXXX";
  const std::filesystem::path folder = mkdtemp(pattern.data());
  const std::string path = folder / "key.pem";
  std::ofstream(path) << "old";
  ASSERT_EQ(chmod(path.c_str(), 0644), 0);
  ASSERT_TRUE(WritePrivateFile(path, "secret").ok());
  struct stat info;
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  std::ostringstream content;
  content << std::ifstream(path).rdbuf();
  EXPECT_EQ(content.str(), "secret");
  EXPECT_THAT(std::string(WritePrivateFile(folder / "absent" / "key", "x").message()), HasSubstr("absent"));
  std::filesystem::remove_all(folder);
}

TEST(JoinToken, OnlyTheSameTokenIsTheSame) {
  const std::string token = *MakeJoinToken(), other = *MakeJoinToken();
  EXPECT_EQ(token.size(), 69u);
  EXPECT_TRUE(SameToken(token, token));
  EXPECT_FALSE(SameToken(other, token));
  EXPECT_FALSE(SameToken(token.substr(0, 68), token));
  EXPECT_FALSE(SameToken(token + "0", token));
  EXPECT_FALSE(SameToken("", token));
  EXPECT_FALSE(SameToken("", ""));
}

}  // namespace
}  // namespace fusionllm::security
