#include "lib/security/credential_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/security/certificate_authority.h"

namespace fusionllm::security {
namespace {

using ::testing::HasSubstr;

class CredentialFilesTest : public ::testing::Test {
 protected:
  CertificateAuthority authority_ = *CertificateAuthority::Create();
  base::TempFolder temp_;
  std::string folder_ = temp_ / "paris";

  PemCredentials Texts(const std::string& name, const IssueOptions& options = {}) const {
    absl::StatusOr<PemCredentials> texts = IssueCredentials(authority_, name, options);
    EXPECT_TRUE(texts.ok()) << texts.status();
    return *std::move(texts);
  }
  void Write(const PemCredentials& texts) const {
    const absl::Status status = WriteCredentials(folder_, "paris-0", texts);
    ASSERT_TRUE(status.ok()) << status;
  }
  absl::Status Read(absl::Time now = absl::Now()) const { return ReadCredentials(folder_, "paris-0", now).status(); }
};

TEST_F(CredentialFilesTest, WhatIsWrittenIsReadBackAndOnlyTheOwnerMayLook) {
  const PemCredentials texts = Texts("paris-0");
  Write(texts);
  const absl::StatusOr<PemCredentials> back = ReadCredentials(folder_, "paris-0");
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->ca_pem, texts.ca_pem);
  EXPECT_EQ(back->certificate_pem, texts.certificate_pem);
  EXPECT_EQ(back->private_key_pem, texts.private_key_pem);
  struct stat info {};
  ASSERT_EQ(stat(folder_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    ASSERT_EQ(stat(entry.path().c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600u) << entry.path();
    ++files;
  }
  EXPECT_EQ(files, 3) << "files written aside were left behind";
}

TEST_F(CredentialFilesTest, WritingAgainReplacesTheFiles) {
  Write(Texts("paris-0"));
  const PemCredentials texts = Texts("paris-0");
  Write(texts);
  const absl::StatusOr<PemCredentials> back = ReadCredentials(folder_, "paris-0");
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->private_key_pem, texts.private_key_pem);
}

TEST_F(CredentialFilesTest, AFolderThatOthersMayWriteToIsRefused) {
  ASSERT_TRUE(std::filesystem::create_directory(folder_));
  std::filesystem::permissions(folder_, std::filesystem::perms(0777));
  const absl::Status status = WriteCredentials(folder_, "paris-0", Texts("paris-0"));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("writable by others (mode 0777)"));
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(CredentialFilesTest, AFolderOfAnotherUserIsNoPlaceForKeys) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a folder away";
  std::filesystem::create_directories(folder_);
  ASSERT_EQ(chown(folder_.c_str(), 65534, 65534), 0);
  const absl::Status status = WriteCredentials(folder_, "paris-0", Texts("paris-0"));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("belongs to another user"));
}

TEST_F(CredentialFilesTest, AFolderThatIsAFileAndANameThatIsAPathAreRefused) {
  temp_.Write("paris", "x");
  EXPECT_THAT(std::string(WriteCredentials(folder_, "paris-0", {}).message()), HasSubstr("is not a folder"));
  EXPECT_FALSE(WriteCredentials(temp_.path(), "../paris-0", {}).ok());
  EXPECT_FALSE(WriteCredentials(temp_.path(), "ca", {}).ok());
  EXPECT_FALSE(ReadCredentials(temp_.path(), "a/b").ok());
}

TEST_F(CredentialFilesTest, EachFileThatIsMissingEmptyOrNotPemIsNamed) {
  for (const std::string file : {"ca.pem", "paris-0.pem", "paris-0.key"}) {
    const std::string path = absl::StrCat(folder_, "/", file);
    Write(Texts("paris-0"));
    const std::string good = base::ReadWholeFile(path);
    const auto message_with = [&](const std::string& bytes) {
      temp_.Write("paris/" + file, bytes);
      const absl::Status status = Read();
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
      return std::string(status.message());
    };
    EXPECT_THAT(message_with(""), HasSubstr(path + " is empty"));
    EXPECT_THAT(message_with("hello"), HasSubstr(path + " is not a PEM file"));
    EXPECT_THAT(message_with(std::string(300 << 10, 'x')), HasSubstr(path + " is longer than"));
    EXPECT_THAT(message_with("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"), HasSubstr(path + " is a PEM file without"));
    EXPECT_THAT(message_with(good.substr(0, good.size() / 2)), HasSubstr("is damaged or cut short"));
    std::filesystem::remove(path);
    const absl::Status missing = Read();
    EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
    EXPECT_THAT(std::string(missing.message()), HasSubstr(path + ": No such file"));
    std::filesystem::create_directory(path);
    EXPECT_THAT(std::string(Read().message()), HasSubstr(path + " is not a plain file"));
    std::filesystem::remove(path);
  }
}

TEST_F(CredentialFilesTest, AKeyOfAnotherCertificateIsRefused) {
  PemCredentials texts = Texts("paris-0");
  texts.private_key_pem = Texts("paris-0").private_key_pem;
  Write(texts);
  const absl::Status status = Read();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("paris-0.key does not belong to the certificate in "));
}

TEST_F(CredentialFilesTest, AProtectedKeyIsRefusedWithoutAskingForThePassword) {
  PemCredentials texts = Texts("paris-0");
  texts.private_key_pem = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
  Write(texts);
  EXPECT_THAT(std::string(Read().message()), HasSubstr("is protected by a password"));
}

TEST_F(CredentialFilesTest, ACertificateOfAnotherNameIsRefused) {
  Write(Texts("tokyo-1"));
  EXPECT_THAT(std::string(Read().message()), HasSubstr("paris-0.pem was issued to 'tokyo-1', 'localhost', not to 'paris-0'"));
}

TEST_F(CredentialFilesTest, ACertificateOfAnotherJobIsRefused) {
  PemCredentials texts = Texts("paris-0");
  texts.ca_pem = CertificateAuthority::Create()->certificate_pem();  // the same common name, another key
  Write(texts);
  const absl::Status status = Read();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("was not issued by the CA in "));
  texts.ca_pem += authority_.certificate_pem();  // several issuers may be trusted, as while one is replaced by the next
  Write(texts);
  EXPECT_TRUE(Read().ok()) << Read();
}

TEST_F(CredentialFilesTest, DatesNameTheClockAndTheCertificate) {
  const absl::Time now = absl::Now();
  const std::string pem = Texts("paris-0", {.validity = absl::Hours(2), .now = now}).certificate_pem;
  const auto message = [&](absl::Time at) { return std::string(CheckDates(pem, "the run's certificate", at).message()); };
  EXPECT_TRUE(CheckDates(pem, "the run's certificate", now).ok());
  EXPECT_THAT(message(now - absl::Minutes(61)),
              AllOf(HasSubstr("the run's certificate is not valid before 2"), HasSubstr("clock is behind")));
  EXPECT_THAT(message(now + absl::Minutes(121)), AllOf(HasSubstr("the run's certificate expired at 2"), HasSubstr("clock is ahead")));
  EXPECT_EQ(CheckDates("x", "it", now).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(CredentialFilesTest, CertificatesHoldOnlyInTheirTime) {
  const absl::Time now = absl::Now();
  Write(Texts("paris-0", {.validity = absl::Hours(2), .now = now}));
  EXPECT_TRUE(Read(now + absl::Minutes(119)).ok());
  EXPECT_TRUE(Read(now - absl::Minutes(59)).ok()) << "a clock that is a little slow";
  const absl::Status expired = Read(now + absl::Minutes(121));
  EXPECT_EQ(expired.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(expired.message()), AllOf(HasSubstr("paris-0.pem expired at 2"), HasSubstr("the clock of this machine says 2"),
                                                    HasSubstr("out of date, or the clock is ahead")));
  const absl::Status early = Read(now - absl::Minutes(61));
  EXPECT_EQ(early.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(early.message()),
              AllOf(HasSubstr("is not valid before 2"), HasSubstr("the clock of this machine says 2"), HasSubstr("it is behind")));
  // Of another job, whatever the clock says: that comes first.
  PemCredentials foreign = Texts("paris-0");
  foreign.ca_pem = CertificateAuthority::Create()->certificate_pem();
  Write(foreign);
  EXPECT_THAT(std::string(Read(now - absl::Hours(24 * 730)).message()), HasSubstr("was not issued by the CA in "));
}

}  // namespace
}  // namespace fusionllm::security
