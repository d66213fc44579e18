#include "lib/security/certificate_authority.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/security/pem.h"

namespace fusionllm::security {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

CertificateAuthority NewAuthority() {
  absl::StatusOr<CertificateAuthority> authority = CertificateAuthority::Create();
  EXPECT_TRUE(authority.ok()) << authority.status();
  return *std::move(authority);
}

CertificatePtr Parse(const std::string& pem) {
  absl::StatusOr<std::vector<CertificatePtr>> certificates = ParseCertificates(pem, "test");
  EXPECT_TRUE(certificates.ok()) << certificates.status();
  return std::move(certificates->front());
}

std::string CommonName(X509& certificate) {
  char name[128] = "";
  X509_NAME_get_text_by_NID(X509_get_subject_name(&certificate), NID_commonName, name, sizeof name);
  return name;
}

int64_t SecondsBetween(const ASN1_TIME* from, const ASN1_TIME* until) {
  int days = 0;
  int seconds = 0;
  EXPECT_EQ(ASN1_TIME_diff(&days, &seconds, from, until), 1);
  return int64_t{86400} * days + seconds;
}

TEST(CertificateAuthorityTest, TheAuthorityMaySignCertificatesAndNothingBelowItMay) {
  const CertificateAuthority authority = NewAuthority();
  const CertificatePtr ca = Parse(authority.certificate_pem());
  EXPECT_EQ(X509_check_ca(ca.get()), 1);
  EXPECT_EQ(X509_get_pathlen(ca.get()), 0);
  EXPECT_EQ(X509_get_key_usage(ca.get()), static_cast<uint32_t>(KU_KEY_CERT_SIGN | KU_CRL_SIGN));
  EXPECT_NE(X509_get_extension_flags(ca.get()) & EXFLAG_SS, 0u) << "not self-signed";
  const int constraints = X509_get_ext_by_NID(ca.get(), NID_basic_constraints, -1);
  ASSERT_GE(constraints, 0);
  EXPECT_EQ(X509_EXTENSION_get_critical(X509_get_ext(ca.get(), constraints)), 1);

  const absl::StatusOr<IssuedCertificate> issued = authority.Issue("paris-0");
  ASSERT_TRUE(issued.ok()) << issued.status();
  EXPECT_EQ(X509_check_ca(Parse(issued->certificate_pem).get()), 0);
}

TEST(CertificateAuthorityTest, SubjectAltNamesListProcessThenLocalhostThenHosts) {
  const CertificateAuthority authority = NewAuthority();
  const absl::StatusOr<IssuedCertificate> issued =
      authority.Issue("Paris_0.a", {.hosts = {"node7.example", "10.0.0.7", "2001:db8::7", "localhost"}});
  ASSERT_TRUE(issued.ok()) << issued.status();
  const CertificatePtr leaf = Parse(issued->certificate_pem);
  EXPECT_EQ(CommonName(*leaf), "Paris_0.a");
  EXPECT_THAT(DnsNames(*leaf), ElementsAre("Paris_0.a", "localhost", "node7.example"));
  for (const char* address : {"127.0.0.1", "10.0.0.7", "2001:db8::7"}) EXPECT_EQ(X509_check_ip_asc(leaf.get(), address, 0), 1) << address;
  EXPECT_EQ(X509_check_ip_asc(leaf.get(), "10.0.0.8", 0), 0);
}

TEST(CertificateAuthorityTest, ACertificateServesServersAndClientsAndIsSignedByTheAuthority) {
  const CertificateAuthority authority = NewAuthority();
  const absl::StatusOr<IssuedCertificate> issued = authority.Issue("paris-0");
  ASSERT_TRUE(issued.ok()) << issued.status();
  const CertificatePtr ca = Parse(authority.certificate_pem());
  const CertificatePtr leaf = Parse(issued->certificate_pem);
  EXPECT_EQ(X509_get_extended_key_usage(leaf.get()), static_cast<uint32_t>(XKU_SSL_SERVER | XKU_SSL_CLIENT));
  EXPECT_EQ(X509_verify(leaf.get(), X509_get0_pubkey(ca.get())), 1);
  EXPECT_EQ(X509_check_issued(ca.get(), leaf.get()), X509_V_OK);
  char group[32] = "";
  EXPECT_EQ(EVP_PKEY_get_group_name(X509_get0_pubkey(leaf.get()), group, sizeof group, nullptr), 1);
  EXPECT_STREQ(group, "prime256v1");

  const CertificatePtr stranger = Parse(NewAuthority().certificate_pem());
  EXPECT_NE(X509_verify(leaf.get(), X509_get0_pubkey(stranger.get())), 1);
}

TEST(CertificateAuthorityTest, SerialNumbersHave128BitsAndNeverRepeat) {
  const CertificateAuthority authority = NewAuthority();
  std::set<std::string> serials;
  for (int i = 0; i < 32; ++i) {
    const absl::StatusOr<IssuedCertificate> issued = authority.Issue("paris-0");
    ASSERT_TRUE(issued.ok()) << issued.status();
    const CertificatePtr leaf = Parse(issued->certificate_pem);
    const ASN1_INTEGER* serial = X509_get0_serialNumber(leaf.get());
    EXPECT_EQ(ASN1_STRING_length(serial), 16);
    EXPECT_EQ(ASN1_STRING_type(serial), V_ASN1_INTEGER) << "negative";
    serials.emplace(reinterpret_cast<const char*>(ASN1_STRING_get0_data(serial)), ASN1_STRING_length(serial));
  }
  EXPECT_EQ(serials.size(), 32u);
}

TEST(CertificateAuthorityTest, ACertificateNeverOutlivesItsAuthority) {
  const absl::Time now = absl::FromUnixSeconds(1'800'000'000);
  const absl::StatusOr<CertificateAuthority> authority = CertificateAuthority::Create({.validity = absl::Hours(10), .now = now});
  ASSERT_TRUE(authority.ok()) << authority.status();
  const CertificatePtr ca = Parse(authority->certificate_pem());
  EXPECT_EQ(SecondsBetween(X509_get0_notBefore(ca.get()), X509_get0_notAfter(ca.get())), 11 * 3600);
  EXPECT_EQ(authority->expires(), now + absl::Hours(10));

  const absl::StatusOr<IssuedCertificate> brief = authority->Issue("a", {.validity = absl::Hours(2), .now = now + absl::Hours(3)});
  ASSERT_TRUE(brief.ok()) << brief.status();
  const CertificatePtr two_hours = Parse(brief->certificate_pem);
  EXPECT_EQ(SecondsBetween(X509_get0_notBefore(two_hours.get()), X509_get0_notAfter(two_hours.get())), 3 * 3600);

  const absl::StatusOr<IssuedCertificate> greedy = authority->Issue("a", {.validity = absl::Hours(20), .now = now + absl::Hours(3)});
  ASSERT_TRUE(greedy.ok()) << greedy.status();
  EXPECT_EQ(SecondsBetween(X509_get0_notAfter(ca.get()), X509_get0_notAfter(Parse(greedy->certificate_pem).get())), 0);

  const absl::StatusOr<IssuedCertificate> late = authority->Issue("a", {.now = now + absl::Hours(10)});
  EXPECT_EQ(late.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(late.status().message()), HasSubstr("the job's CA is valid from"));
}

TEST(CertificateAuthorityTest, NamesThatCannotBeAnIdentityAreRefused) {
  const CertificateAuthority authority = NewAuthority();
  const struct {
    std::string name;
    const char* complaint;
  } cases[] = {
      {"", "has 0 bytes"},
      {std::string(64, 'a'), "has 64 bytes"},
      {std::string(1 << 20, 'a'), "has 1048576 bytes"},
      {"a b", "is no process name"},
      {"a,DNS:broker", "is no process name"},
      {"../paris", "is no process name"},
      {".hidden", "is no process name"},
      {"broker.", "is no process name"},
      {"*", "is no process name"},
      {std::string("a\0b", 3), "'a\\x00\\x62' is no process name"},
      {"ca", "ca.pem and ca.key belong to the job's CA"},
      {"LocalHost", "cannot tell a process from others"},
      {"127.0.0.1", "cannot tell a process from others"},
      {"10.1.2.3", "cannot tell a process from others"},
  };
  for (const auto& c : cases) {
    const absl::StatusOr<IssuedCertificate> issued = authority.Issue(c.name);
    EXPECT_EQ(issued.status().code(), absl::StatusCode::kInvalidArgument) << c.name.substr(0, 80);
    EXPECT_THAT(std::string(issued.status().message()), HasSubstr(c.complaint));
    EXPECT_LT(issued.status().message().size(), 1000u);
  }
  EXPECT_TRUE(CheckProcessName(std::string(63, 'a')).ok());
}

TEST(CertificateAuthorityTest, HostsAndOptionsOutOfRangeAreRefused) {
  const CertificateAuthority authority = NewAuthority();
  for (const std::string& host : {std::string(), std::string("*.example"), std::string("a,IP:1.2.3.4"), std::string(254, 'a'),
                                  std::string("127.0.0.1\0x", 11), std::string("1::2::3")}) {
    const absl::StatusOr<IssuedCertificate> issued = authority.Issue("a", {.hosts = {host}});
    EXPECT_EQ(issued.status().code(), absl::StatusCode::kInvalidArgument) << host;
    EXPECT_THAT(std::string(issued.status().message()), HasSubstr("is neither a host name nor an IP address"));
  }
  EXPECT_TRUE(authority.Issue("a", {.hosts = std::vector<std::string>(64, "h")}).ok());
  EXPECT_FALSE(authority.Issue("a", {.hosts = std::vector<std::string>(65, "h")}).ok());
  EXPECT_FALSE(authority.Issue("a", {.validity = absl::ZeroDuration()}).ok());
  EXPECT_FALSE(authority.Issue("a", {.validity = absl::InfiniteDuration()}).ok());
  EXPECT_FALSE(CertificateAuthority::Create({.common_name = ""}).ok());
  EXPECT_FALSE(CertificateAuthority::Create({.common_name = std::string(65, 'a')}).ok());
  EXPECT_FALSE(CertificateAuthority::Create({.common_name = "a\nb"}).ok());
  EXPECT_FALSE(CertificateAuthority::Create({.validity = -absl::Hours(1)}).ok());
}

TEST(CertificateAuthorityTest, AnotherProcessIssuesFromTheSavedFiles) {
  const base::TempFolder temp;
  const std::string folder = temp / "deep/ca";
  const CertificateAuthority authority = NewAuthority();
  ASSERT_TRUE(authority.Save(folder).ok());
  struct stat info {};
  ASSERT_EQ(stat(folder.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  for (const char* file : {"ca.pem", "ca.key"}) {
    ASSERT_EQ(stat(absl::StrCat(folder, "/", file).c_str(), &info), 0) << file;
    EXPECT_EQ(info.st_mode & 0777, 0600u) << file;
  }

  const absl::StatusOr<CertificateAuthority> loaded = CertificateAuthority::Load(folder);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->certificate_pem(), authority.certificate_pem());
  const absl::StatusOr<IssuedCertificate> issued = loaded->Issue("tokyo-1");
  ASSERT_TRUE(issued.ok()) << issued.status();
  EXPECT_EQ(X509_verify(Parse(issued->certificate_pem).get(), X509_get0_pubkey(Parse(authority.certificate_pem()).get())), 1);
}

TEST(CertificateAuthorityTest, ARenewedCertificateDiffersInItsSerialAndDatesAlone) {
  const absl::Time now = absl::Now();
  const CertificateAuthority authority = NewAuthority();
  const absl::StatusOr<IssuedCertificate> issued =
      authority.Issue("paris-0", {.hosts = {"node7.example"}, .validity = absl::Seconds(1), .now = now - absl::Minutes(5)});
  ASSERT_TRUE(issued.ok()) << issued.status();
  const absl::StatusOr<std::string> renewed = authority.Renew(issued->certificate_pem, {.validity = absl::Hours(5), .now = now});
  ASSERT_TRUE(renewed.ok()) << renewed.status();
  const CertificatePtr before = Parse(issued->certificate_pem), after = Parse(*renewed);
  EXPECT_EQ(X509_verify(after.get(), X509_get0_pubkey(Parse(authority.certificate_pem()).get())), 1);
  EXPECT_EQ(EVP_PKEY_eq(X509_get0_pubkey(after.get()), X509_get0_pubkey(before.get())), 1);
  EXPECT_EQ(CommonName(*after), "paris-0");
  EXPECT_THAT(DnsNames(*after), ElementsAre("paris-0", "localhost", "node7.example"));
  EXPECT_EQ(X509_get_extended_key_usage(after.get()), X509_get_extended_key_usage(before.get()));
  EXPECT_EQ(X509_check_ca(after.get()), 0);
  EXPECT_NE(ASN1_INTEGER_cmp(X509_get0_serialNumber(after.get()), X509_get0_serialNumber(before.get())), 0);
  EXPECT_EQ(absl::ToUnixSeconds(ToTime(*X509_get0_notAfter(after.get()))), absl::ToUnixSeconds(now + absl::Hours(5)));
}

TEST(CertificateAuthorityTest, WhatAnotherAuthorityIssuedIsNotRenewed) {
  const CertificateAuthority authority = NewAuthority();
  const std::string foreign = NewAuthority().Issue("paris-0")->certificate_pem;
  EXPECT_EQ(authority.Renew(foreign).status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(authority.Renew("x").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(authority.Renew(authority.Issue("a")->certificate_pem, {.now = authority.expires()}).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(CertificateAuthorityTest, ACertificateForAKeyMadeElsewhereFitsThatKey) {
  const CertificateAuthority authority = NewAuthority();
  const PemKeyPair key = *GenerateKeyPair();
  const absl::StatusOr<std::string> certificate = authority.IssueFor("lab", key.public_key_pem);
  ASSERT_TRUE(certificate.ok()) << certificate.status();
  EXPECT_TRUE(CheckKeyPair(*Parse(*certificate), **ParsePrivateKey(key.private_key_pem, "key"), "certificate", "key").ok());
}

TEST(CertificateAuthorityTest, KeysOfOtherKindsGetNoCertificate) {
  const CertificateAuthority authority = NewAuthority();
  const KeyPtr weak(EVP_RSA_gen(1024)), other(EVP_EC_gen("P-384"));
  for (const KeyPtr* key : {&weak, &other}) {
    const absl::Status status = authority.IssueFor("lab", *PublicKeyToPem(**key)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("not an EC key of P-256"));
  }
  for (const std::string& text : {std::string(), std::string("x"), GenerateKeyPair()->private_key_pem, authority.certificate_pem()}) {
    EXPECT_EQ(authority.IssueFor("lab", text).status().code(), absl::StatusCode::kInvalidArgument) << text.substr(0, 40);
  }
}

TEST(CertificateAuthorityTest, LoadingSaysWhichFileIsWrong) {
  const base::TempFolder temp;
  const auto message = [&] { return std::string(CertificateAuthority::Load(temp.path()).status().message()); };
  EXPECT_THAT(message(), HasSubstr("ca.pem: No such file"));
  const CertificateAuthority authority = NewAuthority();
  ASSERT_TRUE(authority.Save(temp.path()).ok());
  const std::string other_folder = temp / "other";
  ASSERT_TRUE(NewAuthority().Save(other_folder).ok());

  temp.Write("ca.key", base::ReadWholeFile(other_folder + "/ca.key"));
  EXPECT_THAT(message(), HasSubstr("ca.key does not belong to the certificate in "));
  temp.Write("ca.key", "");
  EXPECT_THAT(message(), HasSubstr("ca.key is empty"));

  const absl::StatusOr<IssuedCertificate> leaf = authority.Issue("a");
  ASSERT_TRUE(leaf.ok());
  temp.Write("ca.pem", leaf->certificate_pem);
  temp.Write("ca.key", leaf->private_key_pem);
  EXPECT_THAT(message(), HasSubstr("ca.pem is not that of a certificate authority"));
}

}  // namespace
}  // namespace fusionllm::security
